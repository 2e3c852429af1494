// Carillon · shim.h
// SPDX-License-Identifier: Apache-2.0

#ifndef CARILLON_CZLIB_H
#define CARILLON_CZLIB_H

#include <zlib.h>

// `deflateInit2` is a macro, which Swift does not import. 31 window bits write gzip (RFC 1952).
static inline int carillon_gzip_init(z_stream *stream) {
    return deflateInit2(stream, 9, Z_DEFLATED, 31, 9, Z_DEFAULT_STRATEGY);
}

#endif
