// Answers of MetaService that have locations.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "services/manager/service/served_view.hpp"
#include "services/manager/writes/write_requests.hpp"
#include "transport/manager/proto/meta.pb.h"

namespace cenote::manager {

struct located_keys {
  const served_instance& instance;
  const lookup_answer& answer;
  std::span<const cache_key> keys{};  ///< of the question
  std::uint64_t specs = 0;            ///< that are asked for
  std::size_t begin = 0;              ///< keys before the first of `answer`, which are absent
  std::size_t count = 0;              ///< of entries
};

/// A GetCacheLocationResponse with an entry for each key.
void append_locations(const located_keys& keys, answer_form form, std::string& out);
/// A StartWriteCacheResponse.
void append_grant(const served_instance& instance, const start_grant& grant, answer_form form, std::string& out);

/// One location a type and key.
[[nodiscard]] ::kv_cache_manager::proto::meta::GetCacheLocationsByBackendResponse locations_by_type(
    const served_instance& instance, std::span<const cache_key> keys, std::span<const storage_type> types,
    std::uint64_t specs);
/// The states of keys, and all their locations.
[[nodiscard]] ::kv_cache_manager::proto::meta::GetCacheMetaResponse states_of_keys(const served_instance& instance,
                                                                                   std::span<const cache_key> keys);

}  // namespace cenote::manager
