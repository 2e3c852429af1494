// Carillon · ProviderChannel.swift
// SPDX-License-Identifier: Apache-2.0

package import Model
package import Providers
package import Transfer

/// One way to one provider: makes requests with its credentials and reads its answers.
package protocol ProviderChannel: Sendable {
    var provider: Provider { get }

    /// The request for one device.
    ///
    /// - Throws: ``CredentialFault`` if there is no credential to be had now.
    func request(_ message: PushMessage, device: Device) async throws -> ProviderRequest

    /// What an answer means.
    func read(_ response: TransferResponse) -> ProviderAnswer

    /// The provider says that the credential in `request` has expired.
    func renewCredential(of request: ProviderRequest) async
}
