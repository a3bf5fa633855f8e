/* SPDX-License-Identifier: MIT */
/* SipHash-2-4: the authors' test vectors, another implementation, and input cut anywhere. */
#include "harness.h"

#include "base/hash.h"

#include <string.h>

/* The reference key, bytes 00 to 0f, and input, bytes 00 01 02 and on. */
static const uint64_t reference_key[2] = { 0x0706050403020100, 0x0f0e0d0c0b0a0908 };

#define INPUT_LENGTH 700

static void fill(uint8_t *input)
{
    for (size_t i = 0; i < INPUT_LENGTH; i++)
        input[i] = (uint8_t)i;
}

static uint64_t hash_of(const uint64_t key[2], const uint8_t *input, size_t length)
{
    weir_hash hash;
    weir__hash_init(&hash, key);
    weir__hash_add(&hash, input, length);
    return weir__hash_end(&hash);
}

/*
 * The paper's definition over a whole array: the message is padded with zeroes to a multiple of
 * eight, its length modulo 256 the last byte, and each word is put together byte by byte.
 */
static uint64_t siphash(const uint64_t key[2], const uint8_t *input, size_t length)
{
    uint8_t padded[INPUT_LENGTH + 16] = { 0 };
    size_t words = length / 8 + 1;
    memcpy(padded, input, length);
    padded[words * 8 - 1] = (uint8_t)length;

    uint64_t v[4] = { key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d,
                      key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573 };
    for (size_t i = 0; i <= words; i++) {
        uint64_t word = 0;
        for (int byte = 7; i < words && byte >= 0; byte--)
            word = word * 256 + padded[i * 8 + (size_t)byte];
        if (i < words)
            v[3] ^= word;
        else
            v[2] ^= 0xff;
        for (int round = i < words ? 2 : 4; round > 0; round--) {
            /* Two half rounds, which differ in their turns and in which pairs they take. */
            static const struct {
                int a, b, turn_b, c, d, turn_d;
            } halves[2] = { { 0, 1, 13, 2, 3, 16 }, { 2, 1, 17, 0, 3, 21 } };
            for (int half = 0; half < 2; half++) {
                int a = halves[half].a, b = halves[half].b, c = halves[half].c, d = halves[half].d;
                v[a] += v[b];
                v[c] += v[d];
                v[b] = (v[b] << halves[half].turn_b | v[b] >> (64 - halves[half].turn_b)) ^ v[a];
                v[d] = (v[d] << halves[half].turn_d | v[d] >> (64 - halves[half].turn_d)) ^ v[c];
                v[a] = v[a] << 32 | v[a] >> 32;
            }
        }
        if (i < words)
            v[0] ^= word;
    }
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

#define assert_hash(actual, expected) assert_int_equal((uint64_t)(actual), (uint64_t)(expected))

static void gives_the_reference_results(void **state)
{
    (void)state;
    static const struct {
        size_t length;
        uint64_t hash;
    } vectors[] = {
        { 0, 0x726fdb47dd0e0e31 },  { 1, 0x74f839c593dc67fd },  { 7, 0xab0200f58b01d137 },
        { 8, 0x93f5f5799a932462 },  { 15, 0xa129ca6149be45e5 }, { 16, 0x3f2acc7f57c29bdb },
        { 32, 0x7127512f72f27cce }, { 56, 0xb78dbfaf3a8d83bd }, { 63, 0x958a324ceb064572 },
    };
    uint8_t input[INPUT_LENGTH];
    fill(input);
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        assert_hash(hash_of(reference_key, input, vectors[i].length), vectors[i].hash);
        assert_hash(siphash(reference_key, input, vectors[i].length), vectors[i].hash);
    }
}

static void agrees_with_another_implementation(void **state)
{
    (void)state;
    uint8_t input[INPUT_LENGTH];
    fill(input);
    /* Beyond 256 bytes the length that goes into the hash has wrapped around. */
    for (size_t length = 0; length <= INPUT_LENGTH; length++)
        assert_hash(hash_of(reference_key, input, length), siphash(reference_key, input, length));

    uint64_t random = 0x9e3779b97f4a7c15;
    for (int i = 0; i < 2000; i++) {
        uint64_t key[2];
        for (int k = 0; k < 2; k++) {
            random = random * 6364136223846793005 + 1442695040888963407;
            key[k] = random ^ random >> 29;
        }
        for (size_t b = 0; b < 80; b++)
            input[b] = (uint8_t)((random >> (b % 8 * 8)) * (b + 1));
        size_t length = (size_t)(random >> 40) % 80;
        assert_hash(hash_of(key, input, length), siphash(key, input, length));
    }
}

static void every_split_gives_the_same(void **state)
{
    (void)state;
    uint8_t input[INPUT_LENGTH];
    fill(input);
    for (size_t length = 0; length <= 40; length++) {
        uint64_t whole = hash_of(reference_key, input, length);
        for (size_t first = 0; first <= length; first++) {
            for (size_t second = first; second <= length; second++) {
                weir_hash hash;
                weir__hash_init(&hash, reference_key);
                weir__hash_add(&hash, input, first);
                weir__hash_add(&hash, input + first, second - first);
                weir__hash_add(&hash, input + second, length - second);
                assert_hash(weir__hash_end(&hash), whole);
            }
        }
    }
}

static void pieces_of_every_size_give_the_same(void **state)
{
    (void)state;
    uint8_t input[INPUT_LENGTH];
    fill(input);
    uint64_t whole = hash_of(reference_key, input, INPUT_LENGTH);
    for (size_t piece = 1; piece <= 70; piece++) {
        weir_hash hash;
        weir__hash_init(&hash, reference_key);
        for (size_t at = 0; at < INPUT_LENGTH; at += piece)
            weir__hash_add(&hash, input + at,
                           INPUT_LENGTH - at < piece ? INPUT_LENGTH - at : piece);
        assert_hash(weir__hash_end(&hash), whole);
    }
}

static void reads_from_any_address(void **state)
{
    (void)state;
    uint8_t input[INPUT_LENGTH], moved[INPUT_LENGTH + 8];
    fill(input);
    uint64_t expected = hash_of(reference_key, input, 64);
    for (size_t shift = 0; shift < 8; shift++) {
        memcpy(moved + shift, input, 64);
        assert_hash(hash_of(reference_key, moved + shift, 64), expected);
    }
}

static void nothing_added_changes_nothing(void **state)
{
    (void)state;
    weir_hash hash;
    weir__hash_init(&hash, reference_key);
    weir__hash_add(&hash, NULL, 0);
    assert_hash(weir__hash_end(&hash), 0x726fdb47dd0e0e31);
}

static void every_bit_of_key_and_input_matters(void **state)
{
    (void)state;
    uint8_t input[INPUT_LENGTH];
    fill(input);
    uint64_t plain = hash_of(reference_key, input, 24);
    for (int bit = 0; bit < 128; bit++) {
        uint64_t key[2] = { reference_key[0], reference_key[1] };
        key[bit / 64] ^= (uint64_t)1 << bit % 64;
        assert_true(hash_of(key, input, 24) != plain);
    }
    for (int bit = 0; bit < 24 * 8; bit++) {
        input[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_true(hash_of(reference_key, input, 24) != plain);
        input[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        weir_case(gives_the_reference_results),
        weir_case(agrees_with_another_implementation),
        weir_case(every_split_gives_the_same),
        weir_case(pieces_of_every_size_give_the_same),
        weir_case(reads_from_any_address),
        weir_case(nothing_added_changes_nothing),
        weir_case(every_bit_of_key_and_input_matters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
