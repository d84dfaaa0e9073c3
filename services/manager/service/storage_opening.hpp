// From a storage's terms to the backend that deletes there.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include "services/manager/registry/terms.hpp"
#include "services/manager/storages/plugin_storage.hpp"
#include "services/manager/storages/storage_backend.hpp"

namespace cenote::manager {

struct opening_options {
  std::string name{};                             ///< of this manager, for the files that probes write
  std::map<storage_type, std::string> plugins{};  ///< commands by the type that they serve
  std::chrono::milliseconds timeout{2'000};       ///< of an operation of a server or a plug-in
};

/// The backend of a storage by the form of its type. Errors: invalid_config (its plug-in is not there), unsupported
/// (the manager has no blocks in that type), invalid_argument, system.
[[nodiscard]] result<std::unique_ptr<storage_backend>> open_storage(const storage_terms& storage,
                                                                    const opening_options& options,
                                                                    std::shared_ptr<plugin_counters> counters);

}  // namespace cenote::manager
