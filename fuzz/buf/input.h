/* SPDX-License-Identifier: MIT */
/* The form of fuzz_buf's inputs. */
#ifndef WEIR_FUZZ_BUF_INPUT_H
#define WEIR_FUZZ_BUF_INPUT_H

/*
 *   mode | which subject what-it-asks-for... | which subject what-it-asks-for... | ...
 *
 * One byte of mode, then records of one size, an operation each, so that a mutation can put one in
 * or take one out and leave the others as they were.
 */
#define RECORD_SIZE 16
#define MAX_RECORDS 120

#define MODE_NO_CACHE 1 /* every block an allocation of its own, for the address sanitizer */

/* The subject is a slot's number, and on top of it: */
#define SUBJECT_IS_SAME 0x40  /* as the last operation's, so that things happen to one buffer */
#define SUBJECT_IS_SLICE 0x80 /* a borrowed slice of its content */

#endif
