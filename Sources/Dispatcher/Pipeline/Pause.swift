// Carillon · Pause.swift
// SPDX-License-Identifier: Apache-2.0

import ServiceLifecycle

/// Lets time pass for a service that looks again and again; a shutdown or a cancellation cuts it short.
func pause(for duration: Duration) async {
    await cancelWhenGracefulShutdown { try? await Task.sleep(for: duration) }
}

/// Whether a service that looks again and again goes on: neither a shutdown nor the failure of another service has come.
var goesOn: Bool { !Task.isShuttingDownGracefully && !Task.isCancelled }
