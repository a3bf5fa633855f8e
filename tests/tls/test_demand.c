/* SPDX-License-Identifier: MIT */
/* TLS on a channel that reads when it is asked to, and one that does not wait when it closes. */
#include "tls/pair.h"

#include <weir/channel.h>

#include <errno.h>

static void reads_on_demand(weir_ctx *ctx)
{
    weir_channel_set_option(weir_ctx_channel(ctx), WEIR_OPTION_AUTO_READ, false, NULL);
}

static const weir_handler_type on_demand = { .name = "on demand", .added = reads_on_demand };

static void the_handshake_reads_by_itself(void **state)
{
    pair both = { .client.last = &on_demand, .server.last = &on_demand };
    (void)state;
    pair_begin(&both);
    assert_true(weir_embedded_is_reading(both.client.embedded));
    assert_true(weir_embedded_is_reading(both.server.embedded));
    both.most = 1; /* however often it takes */
    pair_shake(&both);
    pair_say(&both, &both.client, "hello");
    pair_finish(&both);
}

static void who_does_not_wait_is_told_of_no_truncation(void **state)
{
    pair both = { .client.tls.close_ms = WEIR_OFF };
    (void)state;
    pair_begin(&both);
    pair_shake(&both);
    weir_channel_close(weir_embedded_channel(both.client.embedded), NULL);
    weir_embedded_run(both.client.embedded);
    assert_false(weir_channel_is_open(weir_embedded_channel(both.client.embedded)));
    assert_int_equal(weir_embedded_check(both.client.embedded), 0);
    pair_carry(&both);
    assert_int_equal(weir_embedded_check(both.server.embedded), 0);
    pair_finish(&both);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(the_handshake_reads_by_itself),
        weir_case(who_does_not_wait_is_told_of_no_truncation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
