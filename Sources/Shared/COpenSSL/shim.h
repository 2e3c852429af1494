// Carillon · shim.h
// SPDX-License-Identifier: Apache-2.0

// OpenSSL 3's libcrypto, as far as Web Push needs it: nothing of what version 3 deprecates.
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/obj_mac.h>
#include <openssl/params.h>
#include <openssl/rand.h>
