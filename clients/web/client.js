// Carillon · client.js
// SPDX-License-Identifier: Apache-2.0

// The inbox without the element, for pages and apps that draw it themselves.

export { Inbox } from "./dist/web/inbox.js";
export { CallError } from "./dist/web/inbox-client.js";
export { Push } from "./dist/web/inbox-push.js";
