// Carillon · receiver_before.mjs
// SPDX-License-Identifier: Apache-2.0
//
// Runs before the blocks of docs/producers/javascript.md: the receiver listens on any free port.

process.env.PORT = "0";
process.env.WEBHOOK_SECRET = "whsec";
