/* SPDX-License-Identifier: MIT */
/* The pools of threads for calls that block. */
#include "exec/executors.h"

#include "base/sys.h"
#include "exec/blocking_pool.h"

#include <weir/threads.h>

#include <errno.h>

#define WAIT_NS WEIR_SECONDS(30)

static atomic_bool is_blocked;
static atomic_int running;

typedef struct probe_call {
    weir_blocking_call call;
    atomic_int code; /* of waiting for all threads, on one of them */
    atomic_bool has_run;
} probe_call;

static void run_blocked(weir_blocking_call *call)
{
    probe_call *self = WEIR_CONTAINER(call, probe_call, call);
    atomic_fetch_add(&running, 1);
    WAIT_FOR(!atomic_load(&is_blocked));
    atomic_fetch_sub(&running, 1);
    atomic_store(&self->has_run, true);
}

static void wait_for_all(weir_blocking_call *call)
{
    probe_call *self = WEIR_CONTAINER(call, probe_call, call);
    atomic_store(&self->code, weir_executor_global_wait_idle(WAIT_NS));
    atomic_store(&self->has_run, true);
}

static void run_in(weir_blocking_pool *pool, probe_call *self, void (*run)(weir_blocking_call *))
{
    self->call.run = run;
    assert_int_equal(weir__blocking_pool_run(pool, weir__sys_linux(), &self->call), 0);
}

/* As many as there are threads are blocked, and one more waits: the other pool goes on. */
static void check_pools(weir_blocking_pool *full, weir_blocking_pool *other)
{
    static probe_call blocked[WEIR__BLOCKING_THREADS + 1];
    probe_call free_call = { 0 };
    atomic_store(&is_blocked, true);
    for (int i = 0; i <= WEIR__BLOCKING_THREADS; i++) {
        blocked[i] = (probe_call){ 0 };
        run_in(full, &blocked[i], run_blocked);
    }
    WAIT_FOR(atomic_load(&running) == WEIR__BLOCKING_THREADS);
    run_in(other, &free_call, wait_for_all);
    WAIT_FOR(atomic_load(&free_call.has_run));
    assert_int_equal(atomic_load(&free_call.code), -EDEADLK);
    assert_int_equal(atomic_load(&running), WEIR__BLOCKING_THREADS);
    assert_int_equal(weir_executor_global_wait_idle(WEIR_MS(1)), -ETIMEDOUT);
    atomic_store(&is_blocked, false);
    assert_int_equal(weir_executor_global_wait_idle(WAIT_NS), 0);
    for (int i = 0; i <= WEIR__BLOCKING_THREADS; i++)
        assert_true(atomic_load(&blocked[i].has_run));
}

static void full_file_pool_delays_no_name(void **state)
{
    (void)state;
    check_pools(&weir__file_pool, &weir__name_pool);
}

static void full_name_pool_delays_no_file(void **state)
{
    (void)state;
    check_pools(&weir__name_pool, &weir__file_pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(full_file_pool_delays_no_name),
        weir_case(full_name_pool_delays_no_file),
    };
    return cmocka_run_group_tests_name("exec.blocking_pool", tests, NULL, NULL);
}
