/* SPDX-License-Identifier: MIT */
/* Contexts: made, reloaded, shared. */
#include "tls/context.h"

#include "tls/failure.h"

#include <weir/alloc.h>

#include <openssl/rand.h>

#include <errno.h>

static void destroy(weir_tls_context *self)
{
    weir__tls_material_release(self->material);
    weir__tls_sessions_deinit(&self->sessions);
    weir__tls_tickets_deinit(&self->tickets);
    pthread_mutex_destroy(&self->lock);
    pthread_mutex_destroy(&self->reloading);
    weir_free(self);
}

static int fill(weir_tls_context *self, const weir_tls_config *config, weir_error *error)
{
    static const weir_tls_config defaults;
    weir__tls_failure_clear();
    if (RAND_bytes(self->id, sizeof self->id) != 1)
        return weir__tls_failure(error, WEIR_ETLS, "OpenSSL has no random numbers");
    int code = weir__tls_material_new(&self->material, self, config != NULL ? config : &defaults,
                                      error);
    if (code < 0)
        return code;
    weir__tls_tickets_set_life(&self->tickets, self->material->session_s);
    weir__tls_sessions_restart(&self->sessions, self->material->trust);
    return 0;
}

static int make(weir_tls_context **context, const weir_tls_config *config, bool is_server,
                weir_error *error)
{
    if (context == NULL)
        return weir_error_set(error, -EINVAL, "tls", "no place for a context");
    *context = NULL;
    weir_tls_context *self = weir_zalloc(sizeof *self);
    if (self == NULL)
        return weir_error_set(error, -ENOMEM, "tls", "no memory for a context");
    atomic_init(&self->refs, 1);
    self->is_server = is_server;
    self->wall = weir_clock_wall();
    pthread_mutex_init(&self->reloading, NULL);
    pthread_mutex_init(&self->lock, NULL);
    weir__tls_tickets_init(&self->tickets);
    weir__tls_sessions_init(&self->sessions);
    int code = fill(self, config, error);
    if (code < 0)
        destroy(self);
    else
        *context = self;
    return code;
}

int weir_tls_context_new_server(weir_tls_context **context, const weir_tls_config *config,
                                weir_error *error)
{
    return make(context, config, true, error);
}

int weir_tls_context_new_client(weir_tls_context **context, const weir_tls_config *config,
                                weir_error *error)
{
    return make(context, config, false, error);
}

weir_tls_context *weir_tls_context_retain(weir_tls_context *context)
{
    if (context != NULL)
        atomic_fetch_add_explicit(&context->refs, 1, memory_order_relaxed);
    return context;
}

void weir_tls_context_release(weir_tls_context *context)
{
    if (context != NULL && atomic_fetch_sub_explicit(&context->refs, 1, memory_order_acq_rel) == 1)
        destroy(context);
}

weir_tls_material *weir__tls_context_material(weir_tls_context *context)
{
    pthread_mutex_lock(&context->lock);
    weir_tls_material *material = weir__tls_material_retain(context->material);
    pthread_mutex_unlock(&context->lock);
    return material;
}

/* The old material is there until another reload takes its place, which cannot be now. */
static int reload(weir_tls_context *context, const weir_tls_config *config, weir_error *error)
{
    weir_tls_material *old = context->material, *made = NULL;
    int code = weir__tls_material_new(&made, context, config != NULL ? config : &old->config,
                                      error);
    if (code < 0)
        return code;
    pthread_mutex_lock(&context->lock);
    context->material = made;
    weir__tls_tickets_set_life(&context->tickets, made->session_s);
    weir__tls_sessions_restart(&context->sessions, made->trust);
    pthread_mutex_unlock(&context->lock);
    weir__tls_material_release(old);
    atomic_fetch_add_explicit(&context->reloads, 1, memory_order_relaxed);
    return 0;
}

/* One at a time: what was read first must not come last. */
int weir_tls_context_reload(weir_tls_context *context, const weir_tls_config *config,
                            weir_error *error)
{
    if (context == NULL)
        return weir_error_set(error, -EINVAL, "tls", "no context");
    pthread_mutex_lock(&context->reloading);
    int code = reload(context, config, error);
    pthread_mutex_unlock(&context->reloading);
    return code;
}

int weir_tls_context_dangerously_verify_nothing(weir_tls_context *context)
{
    if (context == NULL || context->is_server)
        return -EINVAL;
    atomic_store(&context->verifies_nothing, true);
    return 0;
}

void weir_tls_context_get_stats(const weir_tls_context *context, weir_tls_context_stats *stats)
{
    *stats = (weir_tls_context_stats){
        .handshakes = atomic_load_explicit(&context->handshakes, memory_order_relaxed),
        .resumed = atomic_load_explicit(&context->resumed, memory_order_relaxed),
        .failed = atomic_load_explicit(&context->failed, memory_order_relaxed),
        .reloads = atomic_load_explicit(&context->reloads, memory_order_relaxed),
    };
}
