/* SPDX-License-Identifier: MIT */
/* Sealing: which bytes share a record, and which records a buffer. */
#include "tls/seal.h"

#include <errno.h>
#include <sys/uio.h>

#define SMALL 4096 /* below this, copying is cheaper than a record */
#define MOST_SEALED                                                                                \
    ((size_t)3 * WEIR__TLS_PLAIN_MOST) /* in one buffer, which the pool can have                   \
                                        */
#define RUNS 16

typedef struct sealing {
    weir_tls_engine *engine;
    weir_tls_writes *plain, *sealed;
    weir_tls_writes done; /* promises of what is gathered or encrypted, and not in `sealed` yet */
    weir_buf *gathered;   /* small pieces; NULL: none */
    weir_error *error;
} sealing;

static int no_memory(const sealing *self)
{
    return weir_error_set(self->error, -ENOMEM, "tls", "no memory to encrypt a write");
}

/* Takes the buffer; NULL: there was no memory for it. */
static int add_sealed(sealing *self, weir_buf *buf, weir_promise *promise)
{
    if (buf != NULL && weir__tls_writes_add(self->sealed, buf, promise) == 0)
        return 0;
    if (buf != NULL)
        weir_buf_release(buf);
    return no_memory(self);
}

/* What is encrypted so far becomes one buffer, with an empty one behind it for each promise.
 * Nothing is gathered then, so all promises are for what is in it. */
static int pass_on(sealing *self)
{
    weir_buf *out = weir__tls_engine_take_output(self->engine);
    int code = out != NULL ? add_sealed(self, out, NULL) : 0;
    for (weir_tls_write next; code == 0 && weir__tls_writes_take(&self->done, &next);) {
        code = add_sealed(self, weir_buf_new(0), next.promise);
        if (code < 0)
            weir_promise_set(next.promise, code);
        weir_promise_release(next.promise);
    }
    return code;
}

static int encrypt(sealing *self, const void *bytes, size_t length)
{
    size_t more = self->plain->bytes < MOST_SEALED ? self->plain->bytes : MOST_SEALED;
    weir_tls_step step = weir__tls_engine_encrypt(self->engine, bytes, length, more, self->error);
    return step == WEIR_TLS_STEP_FAILED ? -EPROTO : 0;
}

static int encrypt_gathered(sealing *self)
{
    weir_buf *gathered = self->gathered;
    size_t length = weir_buf_readable(gathered);
    if (gathered == NULL)
        return 0;
    self->gathered = NULL;
    int code = encrypt(self, weir_buf_peek(gathered, 0, length), length);
    weir_buf_release(gathered);
    bool is_full = weir__tls_engine_output(self->engine) + WEIR__TLS_PLAIN_MOST > MOST_SEALED;
    return code == 0 && is_full ? pass_on(self) : code;
}

static int gather(sealing *self, const void *bytes, size_t length)
{
    size_t there = weir_buf_readable(self->gathered);
    if (there + length > WEIR__TLS_PLAIN_MOST) {
        int code = encrypt_gathered(self);
        if (code < 0)
            return code;
    }
    if (self->gathered == NULL) {
        size_t all = length + self->plain->bytes;
        self->gathered = weir_buf_new(all < WEIR__TLS_PLAIN_MOST ? all : WEIR__TLS_PLAIN_MOST);
    }
    if (self->gathered == NULL || weir_buf_write_bytes(self->gathered, bytes, length) < 0)
        return no_memory(self);
    return 0;
}

/* One run of memory, in as many buffers as it takes. */
static int seal_run(sealing *self, const uint8_t *bytes, size_t length)
{
    int code = encrypt_gathered(self);
    while (code == 0 && length > 0) {
        size_t part = length < MOST_SEALED ? length : MOST_SEALED;
        if (weir__tls_engine_output(self->engine) > 0 &&
            weir__tls_engine_output(self->engine) + part > MOST_SEALED)
            code = pass_on(self);
        if (code == 0)
            code = encrypt(self, bytes, part);
        bytes += part;
        length -= part;
    }
    return code;
}

static int seal_bytes(sealing *self, const weir_buf *buf, size_t left)
{
    struct iovec runs[RUNS];
    size_t index = weir_buf_reader(buf), covered = 0;
    bool is_alone = self->gathered == NULL && self->plain->list == NULL;
    int code = 0;
    while (left > 0 && code == 0) {
        int count = weir_buf_iovec(buf, index, left, runs, RUNS, &covered);
        is_alone &= count == 1;
        for (int i = 0; i < count && code == 0; i++)
            code = runs[i].iov_len < SMALL && !is_alone
                       ? gather(self, runs[i].iov_base, runs[i].iov_len)
                       : seal_run(self, runs[i].iov_base, runs[i].iov_len);
        index += covered;
        left -= covered;
    }
    return code;
}

/* Bytes are missing, and others are not sent in their place: that ends the write, and without a
 * promise everything, as there is nobody else to tell. */
static int refuse_broken(sealing *self, const weir_tls_write *write)
{
    if (write->promise == NULL)
        return weir_error_set(self->error, WEIR_EBOUNDS, "tls",
                              "bytes were taken out of a buffer that was written");
    weir_promise_set(write->promise, WEIR_EBOUNDS);
    return 0;
}

static int seal_whole(sealing *self, const weir_tls_write *write)
{
    int code = seal_bytes(self, write->buf, write->length);
    if (code == 0 && write->promise != NULL &&
        weir__tls_writes_add(&self->done, NULL, write->promise) < 0)
        code = no_memory(self);
    return code;
}

/* Takes the references. */
static int seal_one(sealing *self, const weir_tls_write *write)
{
    int code = 0;
    if (weir_buf_readable(write->buf) < write->length)
        code = refuse_broken(self, write);
    else if (write->promise == NULL || weir_promise_set_uncancellable(write->promise))
        code = seal_whole(self, write);
    weir_buf_release(write->buf);
    if (code < 0 && write->promise != NULL)
        weir_promise_set(write->promise, self->error->code);
    weir_promise_release(write->promise);
    return code;
}

/* Two records that follow each other have at least SMALL bytes, but for the last; and an empty
 * buffer counts as a byte. */
size_t weir__tls_sealed_most(size_t bytes, size_t writes)
{
    return bytes + (bytes / (SMALL / 2) + 1) * WEIR__TLS_OVERHEAD + writes;
}

int weir__tls_seal(weir_tls_engine *engine, weir_tls_writes *plain, weir_tls_writes *sealed,
                   weir_error *error)
{
    sealing self = { .engine = engine, .plain = plain, .sealed = sealed, .error = error };
    int code = 0;
    for (weir_tls_write next; code == 0 && weir__tls_writes_take(plain, &next);)
        code = seal_one(&self, &next);
    if (code == 0)
        code = encrypt_gathered(&self);
    if (code == 0)
        code = pass_on(&self);
    if (code == 0)
        return 0;
    if (self.gathered != NULL)
        weir_buf_release(self.gathered);
    weir__tls_writes_fail(&self.done, error->code);
    weir__tls_writes_fail(plain, error->code);
    return error->code;
}
