// The registry out of its rows.
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "services/manager/registry/group_rules.hpp"
#include "services/manager/registry/instance_rules.hpp"
#include "services/manager/registry/registry.hpp"
#include "services/manager/registry/registry_editor.hpp"
#include "services/manager/registry/storage_rules.hpp"

namespace cenote::manager {

namespace {

// Reads rows into an editor; each reader returns false for a row that is not taken.
class row_loader {
 public:
  explicit row_loader(plugin_types plugins) : editor_(manager_registry(std::move(plugins)), row_notes::none) {}

  void load(const stored_row& row) {
    if (!take(row.key, row.value)) ++damaged_;
  }

  loaded_registry outcome() && {
    editor_.set_counters(std::max(next_instance_, highest_instance_ + 1), next_storage_);
    return {.value = std::move(std::move(editor_).take().next), .damaged_rows = damaged_};
  }

 private:
  bool take(std::string_view key, std::string_view value) {
    const bool is_counters = key == "n";
    if (!is_counters && (key.size() < 2 || key[1] != '/' || !std::string_view("sgia").contains(key[0]))) return true;
    const auto content = unpack_row(key, value);
    if (!content) return false;
    if (is_counters) return take_counters(*content);
    const std::string_view name = key.substr(2);
    switch (key[0]) {
      case 's': return take_storage(name, *content);
      case 'g': return take_group(name, *content);
      case 'i': return take_instance(name, *content);
      default: return take_account(name, *content);
    }
  }

  template <class Row>
  static bool parse(std::string_view content, Row& row) {
    return content.size() <= std::numeric_limits<int>::max() &&
           row.ParseFromArray(content.data(), static_cast<int>(content.size()));
  }

  bool take_counters(std::string_view content) {
    proto::registry::CountersRow row;
    if (!parse(content, row) || row.next_instance() == 0 || row.next_storage() >= most_storages) return false;
    next_instance_ = row.next_instance();
    next_storage_ = row.next_storage();
    return true;
  }

  bool take_storage(std::string_view name, std::string_view content) {
    proto::registry::StorageRow row;
    if (!parse(content, row) || row.number() >= most_storages || has_storage_[row.number()]) return false;
    auto terms = make_storage_terms(row.storage(), all_plugin_types());
    if (!terms || terms->name != name) return false;
    terms->number = static_cast<std::uint8_t>(row.number());
    has_storage_[terms->number] = true;
    editor_.put(registered_storage{.terms = std::move(*terms), .config = std::move(*row.mutable_storage())});
    return true;
  }

  bool take_group(std::string_view name, std::string_view content) {
    proto::registry::GroupRow row;
    if (!parse(content, row)) return false;
    auto terms = make_group_terms(row.group(), candidate_rule::optional);
    if (!terms || terms->name != name) return false;
    editor_.put(registered_group{.terms = std::move(*terms), .group = std::move(*row.mutable_group())});
    return true;
  }

  bool take_instance(std::string_view id, std::string_view content) {
    proto::registry::InstanceRow row;
    if (!parse(content, row) || row.number() == 0 || row.number() == std::numeric_limits<std::uint64_t>::max()) {
      return false;
    }
    auto terms = make_instance_terms(row.instance());
    if (!terms || terms->id != id || !instance_numbers_.insert(row.number()).second) return false;
    terms->number = row.number();
    highest_instance_ = std::max(highest_instance_, terms->number);
    editor_.put(registered_instance{.terms = std::move(*terms), .info = std::move(*row.mutable_instance())});
    return true;
  }

  bool take_account(std::string_view name, std::string_view content) {
    proto::registry::AccountRow row;
    if (!parse(content, row) || row.account().user_name() != name) return false;
    registered_account entry{.name = std::string(name)};
    const auto& password = row.password();
    if (!proto::admin::AccountRole_IsValid(row.account().role()) ||
        password.salt().size() != entry.secret.salt.size() || password.key().size() != entry.secret.key.size()) {
      return false;
    }
    entry.role = static_cast<account_role>(row.account().role());
    entry.groups.assign(row.account().groups().begin(), row.account().groups().end());
    std::ranges::sort(entry.groups);
    std::memcpy(entry.secret.salt.data(), password.salt().data(), entry.secret.salt.size());
    std::memcpy(entry.secret.key.data(), password.key().data(), entry.secret.key.size());
    entry.secret.n = password.n();
    entry.secret.r = password.r();
    entry.secret.p = password.p();
    if (!is_bearable(entry.secret)) return false;
    editor_.put(std::move(entry));
    return true;
  }

  registry_editor editor_;
  std::array<bool, most_storages> has_storage_{};
  std::set<std::uint64_t> instance_numbers_;
  std::uint64_t next_instance_ = 1;
  std::uint64_t highest_instance_ = 0;
  std::uint32_t next_storage_ = 0;
  std::size_t damaged_ = 0;
};

}  // namespace

loaded_registry manager_registry::load(std::span<const stored_row> rows, plugin_types plugins) {
  const google::protobuf::LogSilencer silence;  // of texts that are not UTF-8, which are counted
  row_loader loader(std::move(plugins));
  for (const stored_row& row : rows) loader.load(row);
  return std::move(loader).outcome();
}

}  // namespace cenote::manager
