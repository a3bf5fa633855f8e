/* SPDX-License-Identifier: MIT */
/* A program that loads weir, uses it on a thread, and unloads it before that thread ends. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

static void *library;

static void *use_and_unload(void *arg)
{
    void *(*buf_new)(size_t capacity);
    int (*msg_release)(void *msg);
    (void)arg;
    void *symbol = dlsym(library, "weir_buf_new");
    memcpy(&buf_new, &symbol, sizeof symbol);
    symbol = dlsym(library, "weir_msg_release");
    memcpy(&msg_release, &symbol, sizeof symbol);
    int code = msg_release(buf_new(100));
    dlclose(library);
    return (void *)(intptr_t)code;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    void *code = NULL;
    library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (library == NULL || pthread_create(&thread, NULL, use_and_unload, NULL) != 0)
        return 1;
    pthread_join(thread, &code);
    return code == (void *)1 ? 0 : 1;
}
