// Carillon · TransferConfiguration.swift
// SPDX-License-Identifier: Apache-2.0

/// What a ``TransferClient`` trusts and how much it takes on at once.
package struct TransferConfiguration: Sendable {
    /// A PEM file of authorities trusted besides the system's directory; nil for the system's bundle alone.
    package var caFile: String?
    package var userAgent = "carillon"
    /// Connections to one host, 2 to 8: with no bound libcurl opens one for each request that finds the others full.
    package var connectionsPerHost = 4
    /// Streams on one connection, as far as the server allows; libcurl's work for a turn grows with all that are open.
    package var streamsPerConnection = 100
    /// Requests under way to all hosts, of which one host never has more than connections × streams.
    package var maximumInFlight = 1_000
    /// Requests that wait for a place; at the bound a request ends as `overloaded` at once.
    package var maximumWaiting = 10_000
    /// TCP and TLS together.
    package var connectTimeout: Duration = .seconds(5)
    /// Lets `http` URLs through.
    package var allowPlainHTTP = false
    /// Connects to public addresses only, and to no proxy: for URLs that strangers chose.
    ///
    /// Asked of every address after its name was resolved, so that a name that changes its mind gets nowhere.
    package var refusesPrivateAddresses = false

    package init() {}

    var maximumInFlightPerHost: Int { self.connectionsPerHost * self.streamsPerConnection }
}
