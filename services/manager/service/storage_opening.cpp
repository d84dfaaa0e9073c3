#include "services/manager/service/storage_opening.hpp"

#include <utility>

#include "services/manager/storages/file_storage.hpp"
#include "services/manager/storages/plugin_process.hpp"
#include "services/manager/storages/redis_storage.hpp"

namespace cenote::manager {

namespace {

result<std::unique_ptr<storage_backend>> open_plugin(const storage_terms& storage, const opening_options& options,
                                                     std::shared_ptr<plugin_counters> counters) {
  const std::string_view name = find_kind(storage.type)->client_name;
  const auto command = options.plugins.find(storage.type);
  if (command == options.plugins.end()) {
    return fail(error_code::invalid_config, "manager.plugins has no " + std::string(name) + "=PROGRAM");
  }
  auto program = plugin_program::make(command->second, storage.name);
  if (!program) return std::unexpected(program.error());
  return std::make_unique<plugin_storage>(
      plugin_subject{.name = storage.name, .type = name, .spec = storage.plugin_spec}, std::move(*program),
      plugin_options{.timeout = options.timeout, .counters = std::move(counters)});
}

}  // namespace

result<std::unique_ptr<storage_backend>> open_storage(const storage_terms& storage, const opening_options& options,
                                                      std::shared_ptr<plugin_counters> counters) {
  switch (form_of(storage.type)) {
    case storage_form::files:
      return std::make_unique<file_storage>(storage.root.empty() ? "/" : storage.root, ".cenote-probe-" + options.name);
    case storage_form::values:
      return redis_storage::make(storage.server_url, storage.server_auth_file, options.timeout);
    case storage_form::plugin: return open_plugin(storage, options, std::move(counters));
    case storage_form::none: break;
  }
  return fail(error_code::unsupported, std::string(name_of(storage.type)) + " has no blocks of a manager");
}

}  // namespace cenote::manager
