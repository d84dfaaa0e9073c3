#include "actors/tier_options.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/machine.hpp"

namespace cenote {

std::map<std::string, blocks::group_options> group_options_of(const config::node_config& config) {
  std::map<std::string, blocks::group_options> groups;
  for (const auto& [name, given] : config.groups) {
    groups.emplace(name, blocks::group_options{
                             .quota = given.quota,
                             .priority = given.priority,
                             .ttl = tenths_of(given.ttl),
                             .keep_quota = given.keep_quota,
                             .keep = given.keep,
                         });
  }
  return groups;
}

blocks::limit_options limit_options_of(const config::node_config& config) {
  return {.reserve_share = config.limits.reserve_share,
          .keep_share = config.limits.keep_share,
          .pin_share = config.limits.pin_share,
          .group_quota = config.limits.group_quota,
          .open_groups = config.limits.open_groups,
          .user_quota = config.limits.user_quota,
          .user_keep_share = config.limits.user_keep_share};
}

prefetch::options prefetch_options_of(const config::node_config& config,
                                      const std::vector<blocks::edge_options>& edges) {
  prefetch::options options;
  options.policy = config.prefetch.policy;
  options.base = config.prefetch.base;
  options.per_ki_token = config.prefetch.per_ki_token;
  options.threshold_tokens = config.prefetch.threshold_tokens;
  options.instance_bytes = config.prefetch.instance_bytes;
  options.total_bytes = config.prefetch.total_bytes != 0 ? config.prefetch.total_bytes : config.dram.capacity / 2;
  for (const blocks::edge_options& each : edges) options.windows.push_back(each.read_window);
  options.lookup_timeout = config.remote.lookup_timeout;
  options.prefill_tokens_per_s = config.prefetch.prefill_tokens_per_s;
  options.assumed_tokens_per_s = config.prefetch.assumed_tokens_per_s;
  options.read_ahead = config.prefetch.read_ahead;
  options.slow_load = config.prefetch.slow_load;
  return options;
}

blocks::life_options life_options_of(const config::node_config& config) {
  constexpr tenths ten_seconds = std::chrono::seconds(10);  // an engine that is started anew finds it
  constexpr rlim_t descriptors = 6;                         // of an instance with a session
  constexpr rlim_t of_a_device = 10;                        // … where it has blocks on one, too
  const rlim_t devices = config.gpu.has_tier() ? config.gpu.devices.size() : 0;
  blocks::life_options options;
  options.idle = tenths_of(config.instances.idle);
  options.empty = ten_seconds;
  options.instances = config.limits.instances;
  options.per_owner = config.limits.instances_per_uid;
  options.trusted = {0, ::geteuid()};
  rlimit open_files{};
  ::getrlimit(RLIMIT_NOFILE, &open_files);
  options.comfortable = static_cast<std::uint32_t>(
      std::clamp<rlim_t>(open_files.rlim_cur / (descriptors + devices * of_a_device), 1, 1U << 16));
  return options;
}

blocks::reserve_options reserve_options_of(const config::node_config& config) {
  constexpr std::uint64_t most_pieces = 1024;  // a descriptor each
  constexpr rlim_t share = 4;                  // of the descriptors, at most
  rlimit open_files{};
  ::getrlimit(RLIMIT_NOFILE, &open_files);
  blocks::reserve_options options;
  options.capacity = config.dram.capacity;
  options.piece = blocks::usual_slab_bytes(config.dram.capacity, config.dram.slab_size);
  options.most_pieces = std::min<std::uint64_t>(most_pieces, open_files.rlim_cur / share);
  options.room = [] { return memory_to_spare(); };
  return options;
}

blocks::store_options store_options_of(const config::node_config& config, std::vector<blocks::edge_options> edges) {
  blocks::store_options options;
  options.capacity = config.dram.capacity;
  options.high_water = config.dram.high_water;
  options.low_water = config.dram.low_water;
  options.slab_bytes = config.dram.slab_size;
  options.max_grants = config.session.max_grants;
  options.reserve_timeout = tenths_of(config.session.reserve_timeout);
  options.checksum_at_commit = config.dram.integrity == config::integrity::commit;
  options.policy = config.dram.policy;
  options.grants_in_capacity = config.dram.grants_in_capacity;
  options.groups = group_options_of(config);
  options.limits = limit_options_of(config);
  options.hold_bytes = prefetch_options_of(config, edges).total_bytes;
  options.edges = std::move(edges);
  options.has_listeners = config.gpu.has_tier();
  options.copies_share = config.cluster.copies;
  options.hosted_share = config.cluster.guest_share;
  options.life = life_options_of(config);
  return options;
}

namespace {

/// The way from a device to DRAM. It says what it holds when it is asked.
blocks::edge_options device_edge_of(const config::node_config& config) {
  constexpr std::uint64_t window = std::uint64_t{256} << 20;  // a hundredth of a second of a slow bus
  blocks::edge_options edge;
  edge.ingest = config.gpu.ingest;
  edge.keep_copy = true;
  edge.write_window = window;
  edge.read_window = window;
  edge.write_ahead = 0.05;
  edge.hinted = false;
  edge.may_forget = true;
  return edge;
}

}  // namespace

blocks::store_options device_store_options_of(const config::node_config& config) {
  auto options = store_options_of(config, {device_edge_of(config)});
  options.capacity = config.gpu.capacity;
  options.high_water = config.gpu.high_water;
  options.low_water = config.gpu.low_water;
  options.slab_bytes = 0;
  options.policy = config.gpu.policy;
  options.checksum_at_commit = false;
  options.bytes_are_host = false;
  options.has_listeners = false;
  options.hold_bytes = config.gpu.capacity / 2;
  options.copies_share = 1;
  options.hosted_share = 1;
  return options;
}

prefetch::options device_prefetch_options_of(const config::node_config& config) {
  auto options = prefetch_options_of(config, {device_edge_of(config)});
  options.total_bytes = config.gpu.capacity / 2;
  return options;
}

}  // namespace cenote
