// Carillon · shim.h
// SPDX-License-Identifier: Apache-2.0

// The parts of OpenSSL 3's libcrypto that Web Push and its initialization need; none is deprecated
// in version 3.
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/obj_mac.h>
#include <openssl/params.h>
#include <openssl/rand.h>
