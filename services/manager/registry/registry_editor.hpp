// A registry on its way to the next one, with the rows that change.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "services/manager/registry/registry.hpp"

namespace cenote::manager {

/// Whether an editor notes the rows that change.
enum class row_notes : std::uint8_t { none, all };

/// Changes a copy of a registry entry by entry and notes the rows. Not thread-safe.
class registry_editor {
 public:
  explicit registry_editor(const manager_registry& base, row_notes notes = row_notes::all)
      : change_{.next = base}, notes_(notes) {}

  void put(registered_storage entry);
  void put(registered_group entry);
  void put(registered_instance entry);
  void put(registered_account entry);
  void erase_storage(std::string_view name);
  void erase_group(std::string_view name);
  void erase_instance(std::string_view id);
  void erase_account(std::string_view name);

  /// The number of the next instance, which is written down.
  [[nodiscard]] std::uint64_t take_instance_number();
  /// A number that no storage has, not the last one that was free; nothing: all are taken.
  [[nodiscard]] std::optional<std::uint8_t> take_storage_number();
  /// The counters as they were read.
  void set_counters(std::uint64_t next_instance, std::uint32_t next_storage) noexcept;
  [[nodiscard]] std::uint64_t next_instance() const noexcept { return change_.next.next_instance_; }

  /// Adds a sentence to the note.
  void remark(std::string_view sentence);
  [[nodiscard]] registry_change& change() noexcept { return change_; }
  [[nodiscard]] registry_change take() && { return std::move(change_); }

 private:
  void write_row(std::string key, const google::protobuf::MessageLite& content);
  void erase_row(std::string key);
  void write_counters();

  registry_change change_;
  row_notes notes_;
  // Copies of the base's maps that may still change; null: that of the base is in use.
  std::shared_ptr<entry_map<registered_storage>> storages_;
  std::shared_ptr<entry_map<registered_group>> groups_;
  std::shared_ptr<entry_map<registered_instance>> instances_;
  std::shared_ptr<entry_map<registered_account>> accounts_;
};

}  // namespace cenote::manager
