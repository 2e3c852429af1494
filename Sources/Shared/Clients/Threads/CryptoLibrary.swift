// Carillon · CryptoLibrary.swift
// SPDX-License-Identifier: Apache-2.0

import COpenSSL

/// OpenSSL, which libpq and libcurl use, too.
enum CryptoLibrary {
    /// Initializes OpenSSL once a process, without its exit handler; call it before each first use.
    ///
    /// The handler would free objects of a thread that still connects to PostgreSQL while the
    /// process ends. Source: OPENSSL_init_crypto(3), OPENSSL_INIT_NO_ATEXIT.
    static let isReady = OPENSSL_init_crypto(UInt64(OPENSSL_INIT_NO_ATEXIT), nil) == 1
}
