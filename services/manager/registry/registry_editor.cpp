// A registry on its way to the next one.
#include "services/manager/registry/registry_editor.hpp"

#include <array>

namespace cenote::manager {

namespace {

// The map that may be changed: a copy of `entries`, which it replaces, unless it is one already.
template <class Entry>
entry_map<Entry>& draft_of(std::shared_ptr<entry_map<Entry>>& draft, std::shared_ptr<const entry_map<Entry>>& entries) {
  if (!draft) {
    draft = std::make_shared<entry_map<Entry>>(*entries);
    entries = draft;
  }
  return *draft;
}

template <class Entry>
void erase_entry(entry_map<Entry>& entries, std::string_view name) {
  if (const auto place = entries.find(name); place != entries.end()) entries.erase(place);
}

std::string row_key(std::string_view kind, std::string_view name) {
  return std::string(kind).append(name);
}

}  // namespace

void registry_editor::write_row(std::string key, const google::protobuf::MessageLite& content) {
  if (notes_ == row_notes::none) return;
  std::string value = pack_row(key, content.SerializeAsString());
  change_.rows.push_back({.key = std::move(key), .value = std::move(value)});
}

void registry_editor::erase_row(std::string key) {
  if (notes_ == row_notes::all) change_.rows.push_back({.key = std::move(key)});
}

void registry_editor::put(registered_storage entry) {
  proto::registry::StorageRow row;
  *row.mutable_storage() = entry.config;
  row.set_number(entry.terms.number);
  const std::string name = entry.terms.name;
  write_row(row_key("s/", name), row);
  draft_of(storages_, change_.next.storages_)[name] = std::make_shared<const registered_storage>(std::move(entry));
}

void registry_editor::put(registered_group entry) {
  proto::registry::GroupRow row;
  *row.mutable_group() = entry.group;
  const std::string name = entry.terms.name;
  write_row(row_key("g/", name), row);
  draft_of(groups_, change_.next.groups_)[name] = std::make_shared<const registered_group>(std::move(entry));
}

void registry_editor::put(registered_instance entry) {
  proto::registry::InstanceRow row;
  *row.mutable_instance() = entry.info;
  row.set_number(entry.terms.number);
  const std::string id = entry.terms.id;
  write_row(row_key("i/", id), row);
  draft_of(instances_, change_.next.instances_)[id] = std::make_shared<const registered_instance>(std::move(entry));
}

void registry_editor::put(registered_account entry) {
  proto::registry::AccountRow row;
  *row.mutable_account() = entry.message();
  auto& password = *row.mutable_password();
  password.set_salt(entry.secret.salt.data(), entry.secret.salt.size());
  password.set_key(entry.secret.key.data(), entry.secret.key.size());
  password.set_n(entry.secret.n);
  password.set_r(entry.secret.r);
  password.set_p(entry.secret.p);
  const std::string name = entry.name;
  write_row(row_key("a/", name), row);
  draft_of(accounts_, change_.next.accounts_)[name] = std::make_shared<const registered_account>(std::move(entry));
}

void registry_editor::erase_storage(std::string_view name) {
  erase_row(row_key("s/", name));
  erase_entry(draft_of(storages_, change_.next.storages_), name);
}

void registry_editor::erase_group(std::string_view name) {
  erase_row(row_key("g/", name));
  erase_entry(draft_of(groups_, change_.next.groups_), name);
}

void registry_editor::erase_instance(std::string_view id) {
  erase_row(row_key("i/", id));
  erase_entry(draft_of(instances_, change_.next.instances_), id);
}

void registry_editor::erase_account(std::string_view name) {
  erase_row(row_key("a/", name));
  erase_entry(draft_of(accounts_, change_.next.accounts_), name);
}

void registry_editor::write_counters() {
  proto::registry::CountersRow row;
  row.set_next_instance(change_.next.next_instance_);
  row.set_next_storage(change_.next.next_storage_);
  write_row("n", row);
}

std::uint64_t registry_editor::take_instance_number() {
  const std::uint64_t number = change_.next.next_instance_++;
  write_counters();
  return number;
}

std::optional<std::uint8_t> registry_editor::take_storage_number() {
  std::array<bool, most_storages> taken{};
  for (const auto& [name, entry] : change_.next.storages()) taken[entry->terms.number] = true;
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const std::size_t number = (change_.next.next_storage_ + i) % taken.size();
    if (taken[number]) continue;
    change_.next.next_storage_ = static_cast<std::uint32_t>((number + 1) % taken.size());
    write_counters();
    return static_cast<std::uint8_t>(number);
  }
  return std::nullopt;
}

void registry_editor::set_counters(std::uint64_t next_instance, std::uint32_t next_storage) noexcept {
  change_.next.next_instance_ = next_instance;
  change_.next.next_storage_ = next_storage;
}

void registry_editor::remark(std::string_view sentence) {
  if (!change_.note.empty()) change_.note += "; ";
  change_.note += sentence;
}

}  // namespace cenote::manager
