// Carillon · shim.h
// SPDX-License-Identifier: Apache-2.0

// The parts of OpenSSL 3 that are needed: of libcrypto for Web Push and the initialization, of
// libssl for libpq's connections. None is deprecated in version 3.
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/obj_mac.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
