// Carillon · ProviderProbe.swift
// SPDX-License-Identifier: Apache-2.0

import Clients
import Core

/// Whether something that a way to a provider needs can be had; nothing is sent to anybody to find out.
package struct ProviderProbe: Sendable, Equatable {
    /// An address, or what else was tried; never a secret.
    package let subject: String
    /// Nil if it can be had.
    package let fault: String?

    package init(_ subject: String, fault: String?) {
        self.subject = subject
        self.fault = fault
    }
}

extension ProviderChannel {
    /// Devices name the hosts themselves.
    package func probe() async -> [ProviderProbe] { [] }
}

extension HTTPProviderChannel {
    package var addresses: [String] { [] }
    package var needsHTTP2: Bool { false }
    package var carriesTraces: Bool { true }

    /// TCP, TLS and HTTP to each address; what it answers to a GET does not matter.
    package func probe() async -> [ProviderProbe] {
        var probes: [ProviderProbe] = []
        for address in self.addresses { probes.append(await self.probe(address)) }
        return probes
    }

    func probe(_ address: String) async -> ProviderProbe {
        let request = TransferRequest(.get, url: address, timeout: .seconds(10), maximumResponseBytes: 1_048_576)
        switch await self.transfer.perform(request) {
        case .answered(let response) where self.needsHTTP2 && response.version != .http2:
            return ProviderProbe(address, fault: "answers by HTTP/\(response.version.rawValue) where 2 is needed")
        case .answered: return ProviderProbe(address, fault: nil)
        case .unanswered(let failure) where failure.reason == .responseTooLarge:
            return ProviderProbe(address, fault: nil)
        case .unanswered(let failure): return ProviderProbe(address, fault: failure.reason.rawValue)
        }
    }
}
