// The list of a group's storages that a client gets.
#include "services/manager/registry/storage_listing.hpp"

#include "core/json_writer.hpp"
#include "services/manager/registry/storage_rules.hpp"
#include "transport/manager/message_json.hpp"

namespace cenote::manager {

std::string storage_configs(const manager_registry& source, const group_terms& group, const storage_set& available) {
  std::string text;
  json_writer writer(text);
  writer.begin_list();
  for (const std::string& name : group.candidates) {
    const auto entry = source.find_storage(name);
    if (!entry) continue;
    writer.begin_object();
    writer.name("type");
    writer.text(find_kind(entry->terms.type)->client_name);
    writer.name("is_available");
    writer.boolean(entry->terms.is_enabled && available.test(entry->terms.number));
    writer.name("global_unique_name");
    writer.text(name);
    if (const auto* part = part_of(entry->config)) {
      writer.name("storage_spec");
      write_json(*part, text);
    }
    writer.end_object();
  }
  writer.end_list();
  return text;
}

}  // namespace cenote::manager
