/* SPDX-License-Identifier: MIT */
/* Whoever holds the only reference pays no locked instruction: shown one instruction at a time. */
#include "harness.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

/* The decoder -------------------------------------------------------------------------------- */

#define LONGEST_INSTRUCTION 15

static bool is_prefix(unsigned char byte)
{
    static const unsigned char prefixes[] = { 0xf0, 0xf2, 0xf3, 0x2e, 0x36, 0x3e,
                                              0x26, 0x64, 0x65, 0x66, 0x67 };
    return memchr(prefixes, byte, sizeof prefixes) != NULL;
}

/* Has the instruction a LOCK prefix, or is it an exchange with memory, which locks without one? */
static bool is_locked(const unsigned char *code)
{
    size_t at = 0;
    for (; at < LONGEST_INSTRUCTION - 2 && is_prefix(code[at]); at++) {
        if (code[at] == 0xf0)
            return true;
    }
    if (code[at] >= 0x40 && code[at] <= 0x4f)
        at++; /* REX */
    bool is_exchange = code[at] == 0x86 || code[at] == 0x87;
    return is_exchange && code[at + 1] >> 6 != 3;
}

static void the_decoder_knows_locked_instructions(void **state)
{
    (void)state;
    static const struct {
        bool is_locked;
        unsigned char code[LONGEST_INSTRUCTION + 1];
    } instructions[] = {
        { true, { 0xf0, 0x48, 0x0f, 0xc1, 0x07 } },             /* lock xadd %rax,(%rdi) */
        { true, { 0xf0, 0xff, 0x07 } },                         /* lock incl (%rdi) */
        { true, { 0x66, 0xf0, 0xff, 0x07 } },                   /* lock incw (%rdi) */
        { true, { 0xf0, 0x66, 0xff, 0x07 } },                   /* the same */
        { true, { 0x64, 0xf0, 0xff, 0x07 } },                   /* lock incl %fs:(%rdi) */
        { true, { 0x87, 0x07 } },                               /* xchg %eax,(%rdi) */
        { true, { 0x86, 0x07 } },                               /* xchg %al,(%rdi) */
        { true, { 0x48, 0x87, 0x47, 0x08 } },                   /* xchg %rax,8(%rdi) */
        { true, { 0x66, 0x44, 0x87, 0x87, 0x00, 0x01 } },       /* xchg %r8w,0x100(%rdi) */
        { true, { 0x87, 0x05, 0x00, 0x00, 0x00, 0x00 } },       /* xchg %eax,0(%rip) */
        { false, { 0x87, 0xc7 } },                              /* xchg %eax,%edi */
        { false, { 0x48, 0x87, 0xf7 } },                        /* xchg %rsi,%rdi */
        { false, { 0x90 } },                                    /* nop, once xchg %eax,%eax */
        { false, { 0xff, 0x07 } },                              /* incl (%rdi) */
        { false, { 0x89, 0x07 } },                              /* mov %eax,(%rdi) */
        { false, { 0xb0, 0xf0 } },                              /* mov $0xf0,%al */
        { false, { 0x66, 0xb8, 0x87, 0x00 } },                  /* mov $0x87,%ax */
        { false, { 0x0f, 0x87, 0x00, 0x00, 0x00, 0x00 } },      /* ja */
        { false, { 0x48, 0x8b, 0x87, 0xf0, 0x00, 0x00, 0x00 } } /* mov 0xf0(%rdi),%rax */
    };
    for (size_t i = 0; i < sizeof instructions / sizeof *instructions; i++)
        assert_int_equal(is_locked(instructions[i].code), instructions[i].is_locked);
}

/* Single steps ------------------------------------------------------------------------------- */

/* What a child does; only the middle one is looked at. */
typedef struct subject {
    void (*prepare)(void);
    void (*watched)(void);
    bool (*is_done)(void); /* whether it did what it should have */
} subject;

typedef struct trace {
    unsigned instructions, locked;
    char first[3 * LONGEST_INSTRUCTION + 32]; /* the first locked one, for who must look for it */
} trace;

#define MARK() __asm__ volatile("int3" ::: "memory")
#define MARK_BYTE 0xcc

#define CANNOT_BE_TRACED 77

static void be_traced(const subject *what)
{
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0) {
        perror("PTRACE_TRACEME");
        _exit(CANNOT_BE_TRACED);
    }
    weir_leak_set_mode(WEIR_LEAK_OFF);
    what->prepare();
    MARK();
    what->watched();
    MARK();
    _exit(what->is_done() ? 0 : 1);
}

static void wait_for_trap(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT_BE_TRACED)
        fail_msg("this test must be allowed to trace its own child");
    assert_true(WIFSTOPPED(status));
    assert_int_equal(WSTOPSIG(status), SIGTRAP);
}

static void resume(pid_t child, enum __ptrace_request how)
{
    assert_int_equal(ptrace(how, child, NULL, NULL), 0);
}

/* The bytes at the instruction pointer; what lies beyond the mapping's end reads as zero. */
static uint64_t read_code(pid_t child, unsigned char code[16])
{
    struct user_regs_struct registers;
    assert_int_equal(ptrace(PTRACE_GETREGS, child, NULL, &registers), 0);
    for (size_t at = 0; at < 16; at += sizeof(long)) {
        errno = 0;
        long word = ptrace(PTRACE_PEEKTEXT, child, (void *)(registers.rip + at), NULL);
        if (errno != 0)
            word = 0;
        memcpy(code + at, &word, sizeof word);
    }
    return registers.rip;
}

static void note_locked(trace *seen, uint64_t address, const unsigned char *code)
{
    if (seen->locked++ > 0)
        return;
    int length = snprintf(seen->first, sizeof seen->first, "%#llx:", (unsigned long long)address);
    for (int i = 0; i < LONGEST_INSTRUCTION; i++)
        length += snprintf(seen->first + length, sizeof seen->first - (size_t)length, " %02x",
                           code[i]);
}

static trace trace_of(const subject *what)
{
    trace seen = { 0 };
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        be_traced(what);
    wait_for_trap(child); /* the first mark, which is behind it now */
    for (;;) {
        unsigned char code[16];
        uint64_t address = read_code(child, code);
        if (code[0] == MARK_BYTE)
            break;
        seen.instructions++;
        assert_true(seen.instructions < 100000);
        if (is_locked(code))
            note_locked(&seen, address, code);
        resume(child, PTRACE_SINGLESTEP);
        wait_for_trap(child);
    }
    resume(child, PTRACE_CONT); /* through the second mark */
    wait_for_trap(child);
    resume(child, PTRACE_CONT);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(seen.instructions > 0);
    return seen;
}

static void assert_lock_free(const subject *what)
{
    trace seen = trace_of(what);
    if (seen.locked > 0)
        fail_msg("%u of %u instructions locked, the first at %s", seen.locked, seen.instructions,
                 seen.first);
}

/* The checker sees what it is there to see --------------------------------------------------- */

static uint64_t word;

static void prepare_nothing(void)
{
    word = 1;
}

static void add_with_lock(void)
{
    __asm__ volatile("lock addq $1, %0" : "+m"(word));
}

static void exchange_with_memory(void)
{
    uint64_t two = 2;
    __asm__ volatile("xchgq %0, %1" : "+r"(two), "+m"(word));
}

static void add_without_lock(void)
{
    __asm__ volatile("addq $1, %0" : "+m"(word));
}

static void exchange_registers(void)
{
    uint64_t one = 1, two = 2;
    __asm__ volatile("xchgq %0, %1" : "+r"(one), "+r"(two));
    word = one;
}

static bool word_is_two(void)
{
    return word == 2;
}

static void the_checker_sees_locked_instructions_run(void **state)
{
    (void)state;
    assert_int_equal(trace_of(&(subject){ prepare_nothing, add_with_lock, word_is_two }).locked, 1);
    assert_int_equal(
        trace_of(&(subject){ prepare_nothing, exchange_with_memory, word_is_two }).locked, 1);
    assert_int_equal(trace_of(&(subject){ prepare_nothing, add_without_lock, word_is_two }).locked,
                     0);
    assert_int_equal(
        trace_of(&(subject){ prepare_nothing, exchange_registers, word_is_two }).locked, 0);
}

/* Messages ----------------------------------------------------------------------------------- */

static weir_msg msg;
static unsigned destroyed;
static int result;

static void note_destroyed(weir_msg *dead)
{
    (void)dead;
    destroyed++;
}

static const weir_msg_type noted_type = { "noted", NULL, note_destroyed };

static void make_message(void)
{
    weir_msg_init(&msg, &noted_type);
}

static void make_shared_message(void)
{
    weir_msg_init(&msg, &noted_type);
    weir_msg_retain(&msg);
}

static void release_message(void)
{
    result = weir_msg_release(&msg);
}

static bool is_destroyed(void)
{
    return result == 1 && destroyed == 1;
}

static bool is_alive(void)
{
    return result == 0 && destroyed == 0 && weir_msg_refs(&msg) == 1;
}

static void releasing_the_only_reference_locks_nothing(void **state)
{
    (void)state;
    assert_lock_free(&(subject){ make_message, release_message, is_destroyed });
}

static void make_once_shared_message(void)
{
    make_shared_message();
    weir_msg_release(&msg);
}

static void releasing_what_was_shared_once_locks_nothing(void **state)
{
    (void)state;
    assert_lock_free(&(subject){ make_once_shared_message, release_message, is_destroyed });
}

static void releasing_a_shared_reference_locks(void **state)
{
    (void)state;
    trace seen = trace_of(&(subject){ make_shared_message, release_message, is_alive });
    assert_int_equal(seen.locked, 1);
}

/* Buffers ------------------------------------------------------------------------------------ */

static size_t buf_size;

static void make_and_release_buffer(void)
{
    result = weir_buf_release(weir_buf_new(buf_size));
}

static void warm_the_pool(void)
{
    for (int i = 0; i < 3; i++)
        make_and_release_buffer();
    result = 0;
}

static bool was_released(void)
{
    return result == 1;
}

static void a_buffer_from_a_warm_pool_locks_nothing(void **state)
{
    (void)state;
    static const size_t sizes[] = { 256, 0, 1, 64, 65, 4096, 65536 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        buf_size = sizes[i];
        assert_lock_free(&(subject){ warm_the_pool, make_and_release_buffer, was_released });
    }
}

static void open_the_pool(void)
{
    weir_buf_release(weir_buf_new(100000)); /* too large to be kept */
}

/* Once more that the checker can see: a new block is counted by all threads together. */
static void a_buffer_from_a_cold_pool_locks(void **state)
{
    (void)state;
    buf_size = 256;
    trace seen = trace_of(&(subject){ open_the_pool, make_and_release_buffer, was_released });
    assert_true(seen.locked > 0);
}

int main(void)
{
    unsetenv("WEIR_POOL"); /* there must be a pool to be warm */
    const struct CMUnitTest tests[] = {
        weir_case(the_decoder_knows_locked_instructions),
        weir_case(the_checker_sees_locked_instructions_run),
        weir_case(releasing_the_only_reference_locks_nothing),
        weir_case(releasing_what_was_shared_once_locks_nothing),
        weir_case(releasing_a_shared_reference_locks),
        weir_case(a_buffer_from_a_warm_pool_locks_nothing),
        weir_case(a_buffer_from_a_cold_pool_locks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
