// The configuration of `cenote manager` in plain types.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/enum_names.hpp"

namespace cenote::config {

enum class storage_choice { weighted, first };  ///< which of several storages is read
CENOTE_ENUM_NAMES(storage_choice, weighted, first);

enum class auth_choice { automatic, on, off };  ///< whether calls need an account; automatic: off loopback
CENOTE_ENUM_NAMES(auth_choice, automatic, on, off);

/// The names that plug-ins may have.
inline constexpr auto plugin_names =
    std::to_array<std::string_view>({"mooncake", "tairmempool", "tairmempool_ssd", "vcns_3fs", "dummy"});

struct manager_section {
  std::string name;
  std::string id;  ///< of the managers that share a store: a part of its keys
  std::string host;
  std::string advertise;
  std::uint16_t meta_rpc_port = 0, meta_http_port = 0, admin_rpc_port = 0, admin_http_port = 0;  ///< 0: off
  std::string state_dir;                                                                         ///< empty: by the user
  std::string store;            ///< "rocksdb", "rocksdb:DIR", "memory", or the address of a Redis server
  std::string store_auth_file;  ///< with a password for that server; empty: none
  bool store_sync = false;
  std::uint64_t store_cache = 0;  ///< bytes
  std::string bootstrap;          ///< "default", "none", or the path of a snapshot
  std::string tls_cert, tls_key, tls_client_ca;
  bool trusted_network = false;
  auth_choice auth = auth_choice::automatic;
  std::uint32_t rate_requests = 0, rate_keys = 0;  ///< a second and account; 0: any number
  std::uint32_t max_keys = 0;
  std::uint64_t max_in_flight = 0;  ///< bytes of the requests that are answered at once
  unsigned threads = 0;             ///< that answer; 0: chosen from the machine
  std::chrono::nanoseconds write_timeout{}, max_write_timeout{}, store_timeout{}, quarantine{}, probe_interval{},
      probe_timeout{};
  storage_choice read_choice = storage_choice::weighted;
  std::string trace_file;            ///< empty: calls are not written down
  std::vector<std::string> plugins;  ///< "NAME=PROGRAM", a program by the type of storage that it serves
};

}  // namespace cenote::config
