/* SPDX-License-Identifier: MIT */
/* OpenSSL's queue of errors, and which of weir's codes is meant. */
#include "tls/failure.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

/* Each step begins with this, mostly with nothing to clear, and OpenSSL clears all places alike. */
void weir__tls_failure_clear(void)
{
    if (ERR_peek_error() != 0)
        ERR_clear_error();
}

static int code_of_ssl_reason(int reason, int otherwise)
{
    switch (reason) {
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
        return WEIR_ETLS_HTTP;
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_UNSUPPORTED_SSL_VERSION:
    case SSL_R_WRONG_SSL_VERSION:
    case SSL_R_VERSION_TOO_LOW:
    case SSL_R_NO_APPLICATION_PROTOCOL:
    case SSL_R_NO_SUITABLE_KEY_SHARE:
    case SSL_R_NO_SUITABLE_GROUPS:
    case SSL_R_NO_SHARED_GROUPS:
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
    case SSL_R_NO_SHARED_SIGNATURE_ALGORITHMS:
    case SSL_R_NO_PROTOCOLS_AVAILABLE:
        return WEIR_ETLS_AGREEMENT;
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
        return WEIR_ETLS_NO_CERTIFICATE;
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
        return WEIR_ETLS_CERTIFICATE;
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_BAD_RECORD_TYPE:
    case SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC:
    case SSL_R_DATA_LENGTH_TOO_LONG:
    case SSL_R_ENCRYPTED_LENGTH_TOO_LONG:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_RECORD_TOO_SMALL:
    case SSL_R_RECORD_LENGTH_MISMATCH:
    case SSL_R_LENGTH_TOO_SHORT:
    case SSL_R_BAD_LENGTH:
    case SSL_R_UNEXPECTED_RECORD:
        return WEIR_ETLS_RECORD;
    case SSL_R_NO_RENEGOTIATION:
        return WEIR_ETLS_RENEGOTIATION;
    default: /* reasons that all of OpenSSL shares lie above those of alerts */
        return reason > SSL_AD_REASON_OFFSET && reason <= SSL_AD_REASON_OFFSET + UINT8_MAX
                   ? WEIR_ETLS_ALERT
                   : otherwise;
    }
}

/* A lack of memory shows up among what follows from it. */
static int code_of(unsigned long entry, int otherwise)
{
    if (ERR_GET_REASON(entry) == ERR_R_MALLOC_FAILURE)
        return -ENOMEM;
    if (ERR_SYSTEM_ERROR(entry))
        return -ERR_GET_REASON(entry);
    return ERR_GET_LIB(entry) == ERR_LIB_SSL ? code_of_ssl_reason(ERR_GET_REASON(entry), otherwise)
                                             : otherwise;
}

static void say(char *to, size_t size, unsigned long entry)
{
    const char *words = ERR_reason_error_string(entry);
    if (ERR_SYSTEM_ERROR(entry))
        snprintf(to, size, "%s", weir_error_text(-ERR_GET_REASON(entry)));
    else if (words != NULL)
        snprintf(to, size, "%s", words);
    else
        snprintf(to, size, "error %08lx", entry);
}

int weir__tls_failure(weir_error *error, int code, const char *format, ...)
{
    char before[160], words[96] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(before, sizeof before, format, args);
    va_end(args);
    int found = code;
    for (unsigned long entry; (entry = ERR_get_error()) != 0;) {
        int meant = code_of(entry, 0);
        if (words[0] == '\0')
            say(words, sizeof words, entry); /* the first is the cause */
        if (meant == -ENOMEM || (meant != 0 && found == code))
            found = meant;
    }
    return weir_error_set(error, found, "tls", "%s%s%s", before, words[0] != '\0' ? ": " : "",
                          words);
}

static int code_of_certificate(long reason)
{
    switch (reason) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return WEIR_ETLS_HOST;
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return WEIR_ETLS_EXPIRED;
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
        return WEIR_ETLS_SELF_SIGNED;
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_CERT_UNTRUSTED:
        return WEIR_ETLS_UNTRUSTED;
    case X509_V_ERR_OUT_OF_MEM:
        return -ENOMEM;
    default:
        return WEIR_ETLS_CERTIFICATE;
    }
}

int weir__tls_failure_of_certificate(weir_error *error, long reason, const char *host)
{
    weir__tls_failure_clear();
    return weir_error_set(error, code_of_certificate(reason), "tls",
                          "the certificate%s%s is refused: %s", host != NULL ? " of " : "",
                          host != NULL ? host : "", X509_verify_cert_error_string(reason));
}
