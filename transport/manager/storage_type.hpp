// The types of storages that the manager gives addresses in. All that differs from type to type is in one table.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace cenote::manager {

/// The numbers are those of the wire.
enum class storage_type : std::uint8_t {
  unspecified = 0,
  threefs = 1,  ///< files below a mount of 3FS
  mooncake = 2,
  tair_mempool = 3,
  nfs = 4,  ///< files below a folder
  vcns_threefs = 5,
  dummy = 6,
  event_report_l1p5 = 7,
  event_report_l2 = 8,
  tair_mempool_ssd = 9,
  cenote = 100,
  redis = 101,
};

/// The form of a storage's blocks, and with it the backend that deletes them.
enum class storage_form : std::uint8_t {
  none,    ///< the manager has no blocks there
  files,   ///< parts of files below a root
  values,  ///< of a Redis or Valkey server
  plugin,  ///< objects of a store that a plug-in serves
};

/// A type of storages.
struct storage_kind {
  storage_type type = storage_type::unspecified;
  std::string_view wire_name = {};
  storage_form form = storage_form::none;
  std::string_view client_name = "unknown";    ///< in lists for clients; a plug-in has it in the configuration, too
  std::string_view scheme = {};                ///< of addresses
  std::string_view part = {};                  ///< the member of the wire's StorageConfig with the fields of this type
  std::array<std::string_view, 2> place = {};  ///< fields of that part that name the place: a path's components
  std::string_view label = {};                 ///< in tables for operators; empty: the wire's name
  std::uint32_t read_weight = 0;    ///< of the read choice where a storage names none; 0: the manager reads none of it
  std::uint16_t always_choice = 0;  ///< the number of the wire's CachePreferStrategy that takes this type alone; the
                                    ///< next one takes it first; 0: there is none
  std::string_view lack = {};       ///< what this manager is built without; empty: nothing
};

/// All of them. Where two types have one part, the one that a part alone means is first.
inline constexpr auto storage_kinds = std::to_array<storage_kind>({
    {.type = storage_type::unspecified, .wire_name = "ST_UNSPECIFIED"},
    {.type = storage_type::threefs,
     .wire_name = "ST_3FS",
     .form = storage_form::files,
     .client_name = "hf3fs",
     .scheme = "3fs",
     .part = "threefs",
     .place = {"mountpoint", "root_dir"},
     .label = "threefs",
     .read_weight = 3,
     .always_choice = 1},
    {.type = storage_type::mooncake,
     .wire_name = "ST_MOONCAKE",
     .form = storage_form::plugin,
     .client_name = "mooncake",
     .scheme = "mooncake",
     .part = "mooncake",
     .label = "mooncake",
     .read_weight = 3,
     .always_choice = 3},
    {.type = storage_type::tair_mempool,
     .wire_name = "ST_TAIRMEMPOOL",
     .form = storage_form::plugin,
     .client_name = "tairmempool",
     .scheme = "tairmempool",
     .part = "tair_mem_pool",
     .read_weight = 3,
     .always_choice = 5},
    {.type = storage_type::nfs,
     .wire_name = "ST_NFS",
     .form = storage_form::files,
     .client_name = "file",
     .scheme = "file",
     .part = "nfs",
     .place = {"root_path"},
     .label = "nfs",
     .read_weight = 5,
     .always_choice = 104},
    {.type = storage_type::vcns_threefs,
     .wire_name = "ST_VCNS_3FS",
     .form = storage_form::plugin,
     .client_name = "vcns_3fs",
     .scheme = "vcns-3fs",
     .part = "vcnsthreefs",
     .read_weight = 3,
     .always_choice = 7},
    {.type = storage_type::dummy,
     .wire_name = "ST_DUMMY",
     .form = storage_form::plugin,
     .client_name = "dummy",
     .scheme = "dummy",
     .part = "dummy",
     .place = {"root_path"},
     .label = "dummy",
     .read_weight = 3},
    {.type = storage_type::event_report_l2,
     .wire_name = "ST_EVENT_REPORT_L2",
     .part = "event_report",
     .label = "event_report",
     .lack = "reports of hosts are not built"},
    {.type = storage_type::event_report_l1p5,
     .wire_name = "ST_EVENT_REPORT_L1P5",
     .part = "event_report",
     .label = "event_report",
     .lack = "reports of hosts are not built"},
    {.type = storage_type::tair_mempool_ssd,
     .wire_name = "ST_TAIRMEMPOOL_SSD",
     .form = storage_form::plugin,
     .client_name = "tairmempool_ssd",
     .scheme = "tairmempool-ssd",
     .part = "tair_mem_pool",
     .read_weight = 3,
     .always_choice = 9},
    {.type = storage_type::cenote,
     .wire_name = "ST_CENOTE",
     .client_name = "cenote",
     .part = "cenote",
     .place = {"cluster_id"},
     .label = "cenote",
     .read_weight = 20,
     .always_choice = 100,
     .lack = "storages of nodes are not built"},
    {.type = storage_type::redis,
     .wire_name = "ST_REDIS",
     .form = storage_form::values,
     .client_name = "redis",
     .scheme = "redis",
     .part = "redis",
     .place = {"url"},
     .label = "redis",
     .read_weight = 10,
     .always_choice = 102},
});

/// The row of a type; null: there is no such type.
[[nodiscard]] constexpr const storage_kind* find_kind(storage_type type) noexcept {
  for (const storage_kind& each : storage_kinds) {
    if (each.type == type) return &each;
  }
  return nullptr;
}

/// The first type that has a part of the wire's StorageConfig; null: none has it.
[[nodiscard]] constexpr const storage_kind* find_kind_of_part(std::string_view part) noexcept {
  for (const storage_kind& each : storage_kinds) {
    if (!part.empty() && each.part == part) return &each;
  }
  return nullptr;
}

/// The type that a plug-in of this name serves; null: none.
[[nodiscard]] constexpr const storage_kind* find_kind_of_plugin(std::string_view name) noexcept {
  for (const storage_kind& each : storage_kinds) {
    if (each.form == storage_form::plugin && each.client_name == name) return &each;
  }
  return nullptr;
}

/// The type's name on the wire ("ST_NFS"). Thread-safe.
[[nodiscard]] constexpr std::string_view name_of(storage_type type) noexcept {
  const storage_kind* const kind = find_kind(type);
  return kind != nullptr ? kind->wire_name : "?";
}

/// The type of a number of the wire; nothing: there is none.
[[nodiscard]] constexpr std::optional<storage_type> storage_type_of(int number) noexcept {
  if (number < 0 || number > 0xff) return std::nullopt;
  const storage_kind* const kind = find_kind(static_cast<storage_type>(number));
  return kind != nullptr ? std::optional(kind->type) : std::nullopt;
}

[[nodiscard]] constexpr storage_form form_of(storage_type type) noexcept {
  const storage_kind* const kind = find_kind(type);
  return kind != nullptr ? kind->form : storage_form::none;
}

}  // namespace cenote::manager
