/* SPDX-License-Identifier: MIT */
/* A user's program that speaks TLS. Compiles as C and as C++. */
#include <weir/tls_select.h>
#include <weir/version.h>

#include <stdio.h>
#include <string.h>

int main(void)
{
    static weir_tls_self_signed own;
    weir_tls_config config;
    weir_tls_context *server = NULL, *client = NULL;
    weir_tls_hosts *hosts = NULL;
    weir_tls_host host;
    memset(&config, 0, sizeof config);
    if (weir_tls_self_signed_make(&own, "localhost", NULL) < 0)
        return 1;
    config.ca_pem = own.certificate_pem;
    if (weir_tls_context_new_client(&client, &config, NULL) < 0)
        return 1;
    config.ca_pem = NULL;
    config.certificate_pem = own.certificate_pem;
    config.key_pem = own.key_pem;
    if (weir_tls_context_new_server(&server, &config, NULL) < 0)
        return 1;
    host.name = "localhost";
    host.context = server;
    if (weir_tls_hosts_new(&hosts, &host, 1, NULL, NULL) < 0 ||
        weir_tls_hosts_find(hosts, "LOCALHOST") != server || weir_tls_handler.name == NULL)
        return 1;
    weir_tls_hosts_release(hosts);
    weir_tls_context_release(server);
    weir_tls_context_release(client);
    printf("weir %s says %08x\n", weir_version(), 0x77656972u);
    return 0;
}
