// Carillon · go.mod
// SPDX-License-Identifier: Apache-2.0

module carillon

go 1.19
