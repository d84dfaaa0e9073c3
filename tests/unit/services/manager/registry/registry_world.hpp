// A registry that tests change step by step, and messages out of JSON.
#pragma once

#include <boost/test/unit_test.hpp>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "services/manager/registry/registry.hpp"
#include "transport/manager/message_json.hpp"

namespace cenote::manager::test {

template <class Message>
Message message_of(std::string_view json) {
  Message message;
  const auto read = read_json(json, message);
  BOOST_TEST_REQUIRE(read.has_value(), json << " " << (read ? "" : read.error().cause.message));
  return message;
}

inline proto::admin::StorageConfig storage(std::string_view json) {
  return message_of<proto::admin::StorageConfig>(json);
}
inline proto::admin::InstanceGroup group(std::string_view json) {
  return message_of<proto::admin::InstanceGroup>(json);
}
inline proto::RegisterInstanceRequest registration(std::string_view json) {
  return message_of<proto::RegisterInstanceRequest>(json);
}

inline constexpr std::string_view plain_storage =
    R"({"global_unique_name":"s1","nfs":{"root_path":"/mnt/kv/","key_count_per_file":8}})";
inline constexpr std::string_view plain_group =
    R"({"name":"g","storage_candidates":["s1"],"global_quota_group_name":"q","max_instance_count":2,"version":1,
        "quota":{"capacity":1000,"quota_config":[{"storage_type":"ST_NFS","capacity":500}]},"extra_info":"x",
        "cache_config":{"reclaim_strategy":{"trigger_strategy":{"used_percentage":0.8}},
                        "meta_indexer_config":{"max_key_count":100,"mutex_shard_num":16}}})";
inline constexpr std::string_view plain_instance =
    R"({"instance_group":"g","instance_id":"i","block_size":64,"model_deployment":{"model_name":"m","dtype":"bf16"},
        "location_spec_infos":[{"name":"tp0","size":512},{"name":"tp1","size":256}]})";

/// `json` with `next` in the place of `part`.
inline std::string changed(std::string_view json, std::string_view part, std::string_view next) {
  std::string text(json);
  const std::size_t place = text.find(part);
  BOOST_TEST_REQUIRE(place != std::string::npos, part);
  return text.replace(place, part.size(), next);
}

/// The registry and its rows as a store has them.
class registry_world {
 public:
  manager_registry value;
  std::map<std::string, std::string> rows;
  std::string note;
  std::optional<std::uint8_t> dropped_storage;
  std::optional<std::uint64_t> removed_instance;
  std::size_t changed_rows = 0;

  /// Applies a change; the code of the outcome.
  answer_code apply(rpc_outcome<registry_change> change) {
    if (!change) {
      note = change.error().message;
      return change.error().code;
    }
    value = std::move(change->next);
    note = change->note;
    dropped_storage = change->dropped_storage;
    removed_instance = change->removed_instance;
    for (row_change& row : change->rows) {
      if (row.value) {
        rows[row.key] = std::move(*row.value);
      } else {
        BOOST_TEST(rows.erase(row.key) == 1U, row.key);
      }
    }
    changed_rows = change->rows.size();
    return answer_code::ok;
  }
  [[nodiscard]] std::vector<stored_row> stored() const {
    std::vector<stored_row> all;
    for (const auto& [key, content] : rows) all.push_back({.key = key, .value = content});
    return all;
  }
  [[nodiscard]] bool notes(std::string_view text) const { return note.find(text) != std::string::npos; }

  answer_code add_storage(std::string_view json) { return apply(value.add_storage(storage(json))); }
  answer_code create_group(std::string_view json) { return apply(value.create_group(group(json))); }
  answer_code update_group(std::string_view json, std::int64_t version) {
    return apply(value.update_group(group(json), version));
  }
  answer_code add_instance(std::string_view json) { return apply(value.register_instance(registration(json))); }
};

inline registry_world plain_world() {
  registry_world world;
  BOOST_TEST_REQUIRE((world.add_storage(plain_storage) == answer_code::ok), world.note);
  BOOST_TEST_REQUIRE((world.create_group(plain_group) == answer_code::ok), world.note);
  BOOST_TEST_REQUIRE((world.add_instance(plain_instance) == answer_code::ok), world.note);
  return world;
}

}  // namespace cenote::manager::test

namespace cenote::manager {

// For the reports of tests.
inline std::ostream& operator<<(std::ostream& out, answer_code code) {
  return out << name_of(code);
}

}  // namespace cenote::manager
