/* SPDX-License-Identifier: MIT */
/* The files that configure name lookups. */
#include "bootstrap/name_config.h"
#include "bootstrap/shared.h"

#include <fcntl.h>

typedef struct files {
    char resolv_conf[64], hosts[64];
    weir_name_paths paths;
    weir_sys *sys;
    weir_name_config *config;
} files;

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void make_files(files *self)
{
    *self = (files){ .sys = weir__sys_linux() };
    snprintf(self->resolv_conf, sizeof self->resolv_conf, "/tmp/weir-conf-r-%d", (int)getpid());
    snprintf(self->hosts, sizeof self->hosts, "/tmp/weir-conf-h-%d", (int)getpid());
    self->paths = (weir_name_paths){ .resolv_conf = self->resolv_conf, .hosts = self->hosts };
    write_file(self->resolv_conf, "search a.example\n");
    write_file(self->hosts, "10.0.0.1 one\n");
}

static void remove_files(files *self)
{
    weir__name_config_release(self->config);
    self->config = NULL;
    unlink(self->resolv_conf);
    unlink(self->hosts);
}

static void load(files *self)
{
    weir__name_config_release(self->config);
    self->config = NULL;
    assert_int_equal(weir__name_config_load(&self->config, self->sys, &self->paths), 0);
}

static bool has_host(const files *self, const char *host)
{
    weir_candidates ipv6 = { 0 }, ipv4 = { 0 };
    return weir__hosts_file_find(&self->config->hosts, host, &ipv6, &ipv4);
}

static bool is_current(const files *self)
{
    return weir__name_config_is_current(self->config, self->sys, &self->paths);
}

static void changed_files_are_noticed(void **state)
{
    (void)state;
    files self;
    make_files(&self);
    load(&self);
    assert_true(is_current(&self));
    assert_string_equal(self.config->search.domains[0], "a.example");
    assert_true(has_host(&self, "one"));
    for (int is_hosts = 0; is_hosts < 2; is_hosts++) {
        const char *path = is_hosts ? self.hosts : self.resolv_conf;
        write_file(path, "10.0.0.1 one two\n");
        assert_false(is_current(&self));
        load(&self);
        assert_true(is_current(&self));
        assert_int_equal(unlink(path), 0);
        assert_false(is_current(&self));
        load(&self);
        assert_true(is_current(&self));
        write_file(path, "");
        assert_false(is_current(&self)); /* though it is as empty as before */
        load(&self);
    }
    remove_files(&self);
}

static void missing_files_are_like_empty_ones(void **state)
{
    (void)state;
    files self;
    make_files(&self);
    self.paths = (weir_name_paths){ .resolv_conf = "/nowhere/at/all", .hosts = "/dev/null/none" };
    load(&self);
    assert_true(is_current(&self));
    assert_int_equal(self.config->search.count, 0);
    assert_int_equal(self.config->search.ndots, 1);
    assert_false(has_host(&self, "one"));
    assert_true(has_host(&self, "localhost"));
    remove_files(&self);
}

static void count_warnings(void *arg, weir_log_level level, const char *origin, const char *line)
{
    (void)origin, (void)line;
    *(int *)arg += level == WEIR_LOG_WARN;
}

static void lines_beyond_the_limit_are_ignored(void **state)
{
    (void)state;
    files self;
    int warnings = 0;
    make_files(&self);
    FILE *file = fopen(self.hosts, "w");
    assert_non_null(file);
    size_t bytes = 0;
    while (bytes < WEIR__HOSTS_FILE_MAX - 10)
        bytes += (size_t)fprintf(file, "# %1000s\n%s", "", bytes == 0 ? "10.0.0.1 one\n" : "");
    fprintf(file, "%*s10.0.0.1 cut-in-two\n10.0.0.1 late\n",
            bytes < WEIR__HOSTS_FILE_MAX ? (int)(WEIR__HOSTS_FILE_MAX - bytes) : 0, "");
    fclose(file);
    assert_int_equal(weir_log_set(WEIR_LOG_WARN, count_warnings, &warnings), 0);
    load(&self);
    assert_int_equal(weir_log_set(WEIR_LOG_OFF, NULL, NULL), 0);
    assert_int_equal(warnings, 1);
    assert_true(has_host(&self, "one"));
    assert_false(has_host(&self, "late"));
    assert_false(has_host(&self, "cut-in-two"));
    remove_files(&self);
}

static void every_fault_fails_the_load_only(void **state)
{
    static const struct {
        const char *call;
        int code;
    } cases[] = { { "alloc", -ENOMEM }, { "open", -EMFILE }, { "fstat", -EIO }, { "pread", -EIO } };
    (void)state;
    files self;
    make_files(&self);
    for (size_t i = 0; i < COUNT(cases); i++) {
        unsigned nth = 0;
        int code;
        do {
            fault_begin(cases[i].call, ++nth, cases[i].code);
            code = weir__name_config_load(&self.config, self.sys, &self.paths);
            bool is_reached = fault_end();
            assert_int_equal(code, is_reached ? cases[i].code : 0);
        } while (code < 0);
        assert_true(nth > 1);
        weir__name_config_release(self.config);
        self.config = NULL;
    }
    remove_files(&self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(changed_files_are_noticed),
        weir_case(missing_files_are_like_empty_ones),
        weir_case(lines_beyond_the_limit_are_ignored),
        weir_case(every_fault_fails_the_load_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
