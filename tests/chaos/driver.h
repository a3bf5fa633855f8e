/* SPDX-License-Identifier: MIT */
/* Drivers: threads outside of weir that act on channels, routes and the room. */
#ifndef CHAOS_DRIVER_H
#define CHAOS_DRIVER_H

#include "world.h"

/* Starts the drivers of a world, and waits until each has made its steps. */
void driver_start_all(world *where);
void driver_join_all(world *where);

/* Gives back what the drivers have borrowed. */
void driver_return_loans(world *where);

#endif
