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

/// Adds to each key that was found a location of the type, whose storages alone were asked. The response has an entry
/// for each key of the answer.
void add_locations(const located_keys& keys, storage_type type,
                   ::kv_cache_manager::proto::meta::GetCacheLocationsByBackendResponse& response);
/// The states of keys, and all their locations.
[[nodiscard]] ::kv_cache_manager::proto::meta::GetCacheMetaResponse states_of_keys(const served_instance& instance,
                                                                                   std::span<const cache_key> keys);

}  // namespace cenote::manager
