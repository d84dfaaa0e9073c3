#include "worker/recovery.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "actors/boot_clock.hpp"
#include "actors/tier_options.hpp"
#include "actors/tier_stack.hpp"
#include "cluster/agreement.hpp"
#include "config/logging.hpp"
#include "core/byte_io.hpp"
#include "core/checksum.hpp"
#include "core/memory_file.hpp"
#include "core/stored_identity.hpp"

namespace cenote {

namespace {

void mark_retired(memory::segment_header& header) {
  memory::shared_store(header.retired, 1, std::memory_order_release, "worker.session_retired"_point);
}

void retire_session(const local::registry_entry& entry) {
  const off_t bytes = ::lseek(entry.fds[0].get(), 0, SEEK_END);
  if (bytes < static_cast<off_t>(memory::page_bytes)) return;
  auto copy = entry.fds[0].duplicate();
  if (!copy) return;
  auto segment = memory::segment::map(std::move(*copy), static_cast<std::uint64_t>(bytes), memory::access::read_write);
  if (segment) mark_retired(*reinterpret_cast<memory::segment_header*>(segment->data()));
}

/// Nothing: an entry of the node, or of the DRAM tier.
tier_number tier_of_entry(const local::registry_entry& entry) {
  byte_reader meta(entry.meta);
  switch (entry.kind) {
    case local::entry_kind::records: return static_cast<tier_number>(entry.id);
    case local::entry_kind::instance: return tier_of(static_cast<blocks::instance_number>(entry.id));
    case local::entry_kind::slab: return tier_of(static_cast<blocks::instance_number>(entry.id >> 32));
    case local::entry_kind::session: return tier_of(instance_of_session(entry));
    default: return 0;
  }
}

class recovery {
 public:
  recovery(recovery_plan plan, local::keeper_link& keeper) : plan_(std::move(plan)), keeper_(keeper) {}

  result<recovered_state> run(std::vector<local::registry_entry> entries) {
    if (auto made = make_store(entries); !made) return std::unexpected(made.error());
    for (local::registry_entry& entry : entries) {
      const local::entry_kind kind = entry.kind;
      const std::uint64_t id = entry.id;
      if (auto taken = take(std::move(entry)); !taken) {
        log_warn(logger("recovery"), "not taken over",
                 {{"kind", static_cast<int>(kind)}, {"id", id}, {"reason", taken.error().describe()}});
        // Its pins may hold blocks that others would be given: without them there is no safe start.
        const bool unknown_pins = kind == local::entry_kind::session && taken.error().code() == error_code::system;
        if (unknown_pins) return std::unexpected(taken.error().in("session " + std::to_string(id)));
        (void)keeper_.drop(kind, id);
      }
    }
    state_.next_instance =
        std::max({state_.next_instance, state_.store->next_instance(), first_instance_of(plan_.tier)});
    state_.blocks = state_.store->rebuild(boot_now());
    return std::move(state_);
  }

 private:
  result<void> make_store(std::vector<local::registry_entry>& entries) {
    const auto records = std::find_if(entries.begin(), entries.end(),
                                      [](const auto& entry) { return entry.kind == local::entry_kind::records; });
    // The device in this place of the list may be another one than before: then the state is not its.
    const auto device = std::as_bytes(std::span(plan_.device));
    const bool is_its = records != entries.end() && std::ranges::equal(records->meta, device);
    if (is_its && records->fds.size() == 1) {
      auto table = memory::record_table::open(std::move(records->fds[0]));
      if (table) {
        state_.store = std::make_shared<blocks::store>(std::move(plan_.options), std::move(*table));
        entries.erase(records);
        return {};
      }
      log_warn(logger("recovery"), "starting cold: the blocks of the last worker have another layout",
               {{"reason", table.error().describe()}});
    }
    retire_entries(keeper_, entries);
    auto table = memory::record_table::create();
    if (!table) return std::unexpected(table.error());
    const std::array fds{table->memory().fd().get()};
    if (auto kept = keeper_.put(local::entry_kind::records, plan_.tier, device, fds); !kept) return kept;
    state_.store = std::make_shared<blocks::store>(std::move(plan_.options), std::move(*table));
    return {};
  }

  result<void> take(local::registry_entry entry) {
    switch (entry.kind) {
      case local::entry_kind::instance: return take_instance(std::move(entry));
      case local::entry_kind::slab: return take_slab(std::move(entry));
      case local::entry_kind::session: return take_session(std::move(entry));
      default: return fail(error_code::layout_mismatch, "unknown kind");
    }
  }

  result<void> take_instance(local::registry_entry entry) {
    byte_reader meta(entry.meta);
    auto spec = decode_instance_spec(meta);
    if (!spec) return std::unexpected(spec.error());
    if (entry.fds.size() != 2) return fail(error_code::layout_mismatch, "an instance without its segments");
    const auto number = static_cast<blocks::instance_number>(entry.id);
    state_.next_instance = std::max(state_.next_instance, number + 1);
    auto index = memory::shared_file::adopt(std::move(entry.fds[0]), memory::index_segment_bytes);
    if (!index) return std::unexpected(index.error());
    auto file = memory::shared_file::adopt(std::move(entry.fds[1]), memory::version_table::segment_bytes);
    if (!file) return std::unexpected(file.error());
    auto versions = memory::version_table::open(std::move(*file), memory::access::read_write);
    if (!versions) return std::unexpected(versions.error());
    if (versions->is_retired()) {
      return fail(error_code::closed, "an instance that was being given up");
    }
    // Earlier versions did not keep who made an instance.
    const std::uint32_t owner = meta.remaining() >= sizeof(std::uint32_t) ? meta.get<std::uint32_t>() : ::geteuid();
    auto share = meta.remaining() > 0 ? take_share(meta) : nullptr;
    const instance_spec& whole = share ? share->whole : *spec;
    of_ranks_[number] = {identity_of(whole), cluster::shared_identity_of(whole), whole.instance_group};
    auto taken = state_.store->recover_instance(number, *spec, std::move(*index), std::move(*versions), owner);
    if (taken) state_.store->set_share(number, std::move(share));
    return taken;
  }

  /// Null: it makes no sense.
  static std::shared_ptr<const instance_share> take_share(byte_reader& meta) {
    auto whole = decode_instance_spec(meta);
    const auto rank = meta.get<std::uint32_t>();
    if (!whole || !meta.ok()) return nullptr;
    return std::make_shared<const instance_share>(instance_share{std::move(*whole), rank});
  }

  result<void> take_slab(local::registry_entry entry) {
    auto slab = blocks::decode_slab(entry.meta);
    if (!slab) return std::unexpected(slab.error());
    if (entry.fds.size() != 1) return fail(error_code::layout_mismatch, "a slab without its memory");
    auto memory = plan_.open_slab(std::move(entry.fds[0]), slab->segment_bytes);
    if (!memory) return std::unexpected(memory.error());
    return state_.store->recover_slab(slab->slab, std::move(*memory));
  }

  result<void> take_session(local::registry_entry entry) {
    auto session = recover_session(std::move(entry));
    if (!session) return std::unexpected(session.error());
    std::tie((*session)->identity, (*session)->shared_identity, (*session)->instance_group) =
        of_ranks_[(*session)->instance];
    pollfd death{(*session)->pidfd.get(), POLLIN, 0};
    // What a device may still write for it is set aside by whoever serves it.
    const bool is_written = (*session)->view.header().device_writes.load(std::memory_order_acquire) != 0;
    if (!is_written && ::poll(&death, 1, 0) > 0) return fail(error_code::closed, "its process died meanwhile");
    auto taken =
        state_.store->recover_session((*session)->number, (*session)->instance, (*session)->view, (*session)->uid);
    if (taken) {
      state_.sessions.push_back(std::move(*session));
    } else {  // it would read on in memory that nobody keeps for it
      mark_retired((*session)->view.header().segment);
    }
    return taken;
  }

  recovery_plan plan_;
  local::keeper_link& keeper_;
  /// Parts of an instance that sessions' groups of ranks need: see session_resources.
  std::map<blocks::instance_number, std::tuple<instance_identity, instance_identity, std::string>> of_ranks_;
  recovered_state state_;
};

/// The ways from devices to DRAM. A simulated device's threads have ended with their worker.
blocks::lingering_writers lingering_in(const config::node_config& config) {
  const auto is_real = [](const std::string& each) {
    const auto spec = parse_device(each);
    return !spec || spec->kind != device_kind::sim;
  };
  if (!config.gpu.has_tier() || std::ranges::none_of(config.gpu.devices, is_real)) return {};
  return {
      .first = numbers_of_devices.first, .count = numbers_of_devices.count, .time = tenths_of(config.gpu.quarantine)};
}

blocks::request_watch watch_of(config::optimize_mode mode) {
  switch (mode) {
    case config::optimize_mode::off: return blocks::request_watch::none;
    case config::optimize_mode::watch: return blocks::request_watch::followed;
    case config::optimize_mode::watch_all:
    case config::optimize_mode::apply: return blocks::request_watch::all;
  }
  return blocks::request_watch::none;
}

}  // namespace

recovery_plan dram_recovery(const config::node_config& config) {
  auto options = store_options_of(config, edges_of(config));
  options.lingering = lingering_in(config);
  options.watch = watch_of(config.optimize.mode);
  return {.options = std::move(options),
          .open_slab = [](unique_fd fd, std::uint64_t bytes) -> result<memory::slab_mapping> {
            auto memory = blocks::open_slab_memory(std::move(fd), bytes);
            if (!memory) return std::unexpected(memory.error());
            return memory::slab_mapping(std::move(*memory));
          }};
}

result<recovered_state> recover_state(recovery_plan plan, local::keeper_link& keeper,
                                      std::vector<local::registry_entry> entries) {
  return recovery(std::move(plan), keeper).run(std::move(entries));
}

std::map<tier_number, std::vector<local::registry_entry>> take_device_entries(
    std::vector<local::registry_entry>& entries) {
  std::map<tier_number, std::vector<local::registry_entry>> found;
  const auto first =
      std::stable_partition(entries.begin(), entries.end(), [](const auto& each) { return tier_of_entry(each) == 0; });
  for (auto each = first; each != entries.end(); ++each) found[tier_of_entry(*each)].push_back(std::move(*each));
  entries.erase(first, entries.end());
  return found;
}

std::vector<std::uint64_t> sessions_in(const std::vector<local::registry_entry>& entries) {
  std::vector<std::uint64_t> numbers;
  for (const local::registry_entry& each : entries) {
    if (each.kind == local::entry_kind::session) numbers.push_back(each.id);
  }
  return numbers;
}

/// Tells every old client first, then lets go of the old memory. It is never emptied: nobody knows any more which
/// blocks are pinned, and a reader would take zeros for a hit. It is gone when the last client unmaps it.
void retire_entries(local::keeper_link& keeper, std::vector<local::registry_entry>& entries) {
  for (const local::registry_entry& entry : entries) {
    if (entry.kind == local::entry_kind::session && !entry.fds.empty()) retire_session(entry);
  }
  for (const local::registry_entry& entry : entries) (void)keeper.drop(entry.kind, entry.id);
  entries.clear();
}

result<memory::segment> keep_memory(const std::string& name, std::uint64_t bytes, local::keeper_link& keeper,
                                    std::vector<local::registry_entry>& entries) {
  const std::uint64_t id = checksum_of(name.data(), name.size());
  const auto held = std::ranges::find_if(
      entries, [&](const auto& each) { return each.kind == local::entry_kind::tier_memory && each.id == id; });
  if (held != entries.end() && held->fds.size() == 1) {
    auto memory = memory::segment::map(std::move(held->fds[0]), bytes, memory::access::read_write);
    if (memory) return memory;
  }
  auto made = memory::segment::create("tier-memory", bytes);
  if (!made) return made;
  const std::array fds{made->fd().get()};
  const auto meta = std::as_bytes(std::span(name));
  if (auto kept = keeper.put(local::entry_kind::tier_memory, id, meta, fds); !kept) {
    return std::unexpected(kept.error());
  }
  return made;
}

std::vector<blocks::reserve::piece> take_reserve(std::vector<local::registry_entry>& entries) {
  std::vector<blocks::reserve::piece> held;
  for (local::registry_entry& each : entries) {
    if (each.kind != local::entry_kind::reserve || each.fds.size() != 1) continue;
    if (auto memory = blocks::adopt_spare_memory(std::move(each.fds[0]))) held.push_back({each.id, std::move(*memory)});
  }
  std::erase_if(entries, [](const auto& each) { return each.kind == local::entry_kind::reserve; });
  return held;
}

result<void> keep_running(local::keeper_link& keeper, const config::node_config& config) {
  const auto file = make_memory_file("cenote-configuration", config::running_text(config));
  if (!file) return std::unexpected(file.error());
  const std::array fds{file->get()};
  return keeper.put(local::entry_kind::configuration, 0, {}, fds);
}

result<config::node_config> take_configuration(local::handover& handed, const config::config_sources& sources,
                                               local::keeper_link& keeper) {
  const auto held = std::find_if(handed.entries.begin(), handed.entries.end(),
                                 [](const auto& entry) { return entry.kind == local::entry_kind::configuration; });
  if (held != handed.entries.end() && held->fds.size() == 1) {
    const auto text = read_memory_file(held->fds.front().get());
    handed.entries.erase(held);
    auto running = text ? config::load_running(*text) : result<config::node_config>(std::unexpected(text.error()));
    if (running) return running;
    log_warn(logger("worker"), "what the node runs with cannot be read; taking the sources of the configuration",
             {{"reason", running.error().describe()}});
  }
  auto loaded = config::load(sources);
  if (!loaded) return loaded;
  if (auto kept = keep_running(keeper, *loaded); !kept) return std::unexpected(kept.error());
  return loaded;
}

}  // namespace cenote
