// SPDX-License-Identifier: Apache-2.0
// A backend module that cannot be loaded, since its vendor's library is missing, as it is on a machine without the
// driver.
extern "C" int tilemamba_absent_vendor_version();

extern "C" __attribute__((visibility("default"))) const void* tilemamba_backend_module() {
  static const int version = tilemamba_absent_vendor_version();
  return &version;
}
