// SPDX-License-Identifier: Apache-2.0
// The vendor's library of the dummy backend. It is linked to and then never found: its folder is on no search path.
extern "C" int tilemamba_absent_vendor_version() { return 1; }
