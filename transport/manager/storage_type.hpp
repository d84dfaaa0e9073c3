// The types of storages that the manager gives addresses in.
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

/// The type's name on the wire ("ST_NFS"). Thread-safe.
[[nodiscard]] constexpr std::string_view name_of(storage_type type) noexcept {
  switch (type) {
    case storage_type::unspecified: return "ST_UNSPECIFIED";
    case storage_type::threefs: return "ST_3FS";
    case storage_type::mooncake: return "ST_MOONCAKE";
    case storage_type::tair_mempool: return "ST_TAIRMEMPOOL";
    case storage_type::nfs: return "ST_NFS";
    case storage_type::vcns_threefs: return "ST_VCNS_3FS";
    case storage_type::dummy: return "ST_DUMMY";
    case storage_type::event_report_l1p5: return "ST_EVENT_REPORT_L1P5";
    case storage_type::event_report_l2: return "ST_EVENT_REPORT_L2";
    case storage_type::tair_mempool_ssd: return "ST_TAIRMEMPOOL_SSD";
    case storage_type::cenote: return "ST_CENOTE";
    case storage_type::redis: return "ST_REDIS";
  }
  return "?";
}

/// The type of a number of the wire; nothing: there is none.
[[nodiscard]] constexpr std::optional<storage_type> storage_type_of(int number) noexcept {
  if (number < 0 || number > 0xff) return std::nullopt;
  const auto type = static_cast<storage_type>(number);
  if (name_of(type) == "?") return std::nullopt;
  return type;
}

/// Whether its blocks are parts of files below a root.
[[nodiscard]] constexpr bool has_files(storage_type type) noexcept {
  return type == storage_type::nfs || type == storage_type::threefs;
}

/// A type of storages that a plug-in serves.
struct plugin_kind {
  std::string_view name{};  ///< of the plug-in in the configuration, and of the type in lists for clients
  storage_type type = storage_type::unspecified;
  std::string_view scheme{};  ///< of addresses
};
/// All of them.
inline constexpr auto plugin_kinds = std::to_array<plugin_kind>({
    {"mooncake", storage_type::mooncake, "mooncake"},
    {"tairmempool", storage_type::tair_mempool, "tairmempool"},
    {"tairmempool_ssd", storage_type::tair_mempool_ssd, "tairmempool-ssd"},
    {"vcns_3fs", storage_type::vcns_threefs, "vcns-3fs"},
    {"dummy", storage_type::dummy, "dummy"},
});

/// The kind of a type; null: no plug-in serves it.
[[nodiscard]] constexpr const plugin_kind* find_plugin_kind(storage_type type) noexcept {
  for (const plugin_kind& each : plugin_kinds) {
    if (each.type == type) return &each;
  }
  return nullptr;
}

/// The read choice's weight where a storage names none; 0: the manager reads none of that type.
[[nodiscard]] constexpr std::uint32_t default_read_weight(storage_type type) noexcept {
  switch (type) {
    case storage_type::nfs: return 5;
    case storage_type::threefs: return 3;
    case storage_type::redis: return 10;
    case storage_type::cenote: return 20;
    default: return find_plugin_kind(type) != nullptr ? 3 : 0;
  }
}

}  // namespace cenote::manager
