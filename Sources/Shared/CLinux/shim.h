// Carillon · shim.h
// SPDX-License-Identifier: Apache-2.0

// Headers that Swift's Glibc module leaves out.
#ifndef CARILLON_CLINUX_H
#define CARILLON_CLINUX_H

#include <malloc.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

// The header declares it only under _GNU_SOURCE, which the importer does not set for every file.
extern int pthread_setname_np(pthread_t thread, const char *name);

#endif
