#include "worker/device_host.hpp"

#include <pthread.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "actors/ask.hpp"
#include "actors/dram_below.hpp"
#include "actors/dram_tier.hpp"
#include "actors/instance_maker.hpp"
#include "actors/prefetch.hpp"
#include "actors/tier_options.hpp"
#include "actors/tier_stack.hpp"
#include "config/logging.hpp"
#include "core/device_spec.hpp"
#include "worker/kept_entries.hpp"

namespace cenote {

namespace {

constexpr auto listen_deadline = std::chrono::seconds(30);  // of the DRAM tier, which may be busy with its start

/// What a GPU may still write for a worker that was killed has had its time then; a simulated one's threads end with
/// their process.
std::chrono::milliseconds drain_time(const device_spec& device, const config::node_config& config) {
  if (device.kind == device_kind::sim) return std::chrono::milliseconds(0);
  return std::chrono::duration_cast<std::chrono::milliseconds>(config.gpu.quarantine);
}

/// Enough of the entries to retire them when they are used up: their names, and the memory of sessions.
std::vector<local::registry_entry> traces_of(const std::vector<local::registry_entry>& entries) {
  std::vector<local::registry_entry> traces;
  for (const local::registry_entry& each : entries) {
    local::registry_entry& one = traces.emplace_back();
    one.kind = each.kind;
    one.id = each.id;
    if (each.kind != local::entry_kind::session || each.fds.empty()) continue;
    if (auto memory = each.fds.front().duplicate()) one.fds.push_back(std::move(*memory));
  }
  return traces;
}

}  // namespace

device_host::device_host(tier_number tier, const std::string& device, device_host_needs needs,
                         std::vector<local::registry_entry> entries)
    : tier_(tier),
      given_(device),
      device_name_(parse_device(device).value_or(device_spec{.name = device}).name),
      needs_(std::move(needs)),
      is_awaited_(!entries.empty()),
      thread_([this, held = std::move(entries)]() mutable { run(std::move(held)); }) {}

device_host::~device_host() {
  if (thread_.joinable()) thread_.join();
  stack_ = {};
  needs_.copies.close();
  provisioner_.reset();
  device_.reset();  // before the memory that it works on
}

void device_host::end_actors() {
  if (thread_.joinable()) thread_.join();
  const auto end = [](const auto& actor) {
    if (actor) caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  };
  end(stack_.planner);
  end(stack_.top);
  end(stack_.below.actor);
  end(maker_);
  stack_ = {};
  maker_ = nullptr;
}

void device_host::watch_over(pulse& all) {
  if (is_watched_ || !is_begun_.load(std::memory_order_acquire)) return;
  is_watched_ = true;
  all.add_actor("the tier of " + device_name_, needs_.system, stack_.top);
  all.add_actor(stack_.below.name, needs_.system, stack_.below.actor);
  all.add_actor("the planner of prefetches to " + device_name_, needs_.system, stack_.planner);
}

void device_host::run(std::vector<local::registry_entry> entries) {
  ::pthread_setname_np(::pthread_self(), "cenote-device");
  result<void> opened;
  try {
    opened = open(entries);
  } catch (const std::exception& thrown) {
    ++*needs_.exceptions;
    opened = fail(error_code::internal, std::string("an exception: ") + thrown.what());
  }
  if (opened) return;
  log_error(logger("gpu"), "a device's tier is not opened: its engines use DRAM",
            {{"device", device_name_}, {"reason", opened.error().describe()}});
  retire_entries(needs_.keeper, entries);
  say(device_phase::away, opened.error().describe());
  // Nobody above the DRAM tier comes any more: removals need not wait.
  if (!is_awaited_ || has_asked_) return;  // the answer may only be late
  (void)ask<outcome>(needs_.system, listen_deadline, needs_.dram, hear_removals_atom_v, removal_listener(), true);
}

result<void> device_host::open(std::vector<local::registry_entry>& entries) {
  const auto begun = std::chrono::steady_clock::now();
  auto opened = device::open(given_);
  if (!opened) return std::unexpected(opened.error());
  device_ = std::move(*opened);
  needs_.copies.open(device_, [name = device_name_](const error& why) {
    log_warn(logger("gpu"), "a device does not take some of DRAM's memory: copies there go through its driver's stage",
             {{"device", name}, {"reason", why.describe()}});
  });
  auto what_was = traces_of(entries);
  auto state =
      recover_state({.tier = tier_,
                     .device = device_name_,
                     .options = device_store_options_of(*needs_.config),
                     .open_slab = [this](unique_fd fd, std::uint64_t bytes) { return map_slab(std::move(fd), bytes); }},
                    needs_.keeper, std::exchange(entries, {}));
  const std::uint64_t blocks = state ? state->blocks : 0;
  if (auto started = state ? begin(std::move(*state)) : std::unexpected(state.error()); !started) {
    entries = std::move(what_was);
    return started;
  }
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun);
  log_info(logger("gpu"), "a device's tier serves",
           {{"device", device_name_}, {"blocks", blocks}, {"took_ms", took.count()}});
  return {};
}

result<void> device_host::begin(recovered_state state) {
  store_ = state.store;
  const std::vector<std::uint64_t> suspects = state.store->suspects();
  make_provisioner();
  stack_.below = make_below();
  std::vector<session_ptr> known(state.sessions.begin(), state.sessions.end());
  auto& system = needs_.system;
  maker_ = system.spawn<instance_maker, caf::detached>(state.next_instance, last_instance_of(tier_),
                                                       instances_kept_by(needs_.keeper));
  stack_.top = system.spawn<dram_tier>(
      std::move(state.store), std::move(known),
      [this](std::vector<blocks::slab_request> requests) { provisioner_->submit(std::move(requests)); },
      std::vector<lower_tier>{stack_.below}, nullptr, maker_, dram_tier::tell_news(),
      block_tier_role{.is_on_device = true});
  top_.set_value(stack_.top);
  stack_.planner = system.spawn<prefetch_planner>(device_prefetch_options_of(*needs_.config), stack_.top,
                                                  std::vector<lower_tier>{stack_.below}, prefetch::clock::now);
  needs_.path.repeat(dram_tier::tick_interval, stack_.top, tick_atom_v);
  needs_.path.repeat(stack_.below.tick_interval, stack_.below.actor, tick_atom_v);
  is_begun_.store(true, std::memory_order_release);
  // The tier's answer says that the way down knows its place and its instances: a removal before that would find
  // nothing.
  const auto placed = ask<dram_report_ptr>(system, listen_deadline, stack_.top, report_atom_v);
  if (!placed) return std::unexpected(placed.error());
  // Who removes something from DRAM is answered when it is gone here: also who did before this tier was open.
  has_asked_ = true;
  const auto listens = ask<outcome>(system, listen_deadline, needs_.dram, hear_removals_atom_v,
                                    caf::actor_cast<removal_listener>(stack_.below.actor), is_awaited_);
  if (!listens) return std::unexpected(listens.error());
  device_news news{.tier = tier_, .device = device_name_, .phase = device_phase::ready};
  news.stack = stack_;
  needs_.tell(std::move(news), std::move(state.sessions), suspects);
  return {};
}

lower_tier device_host::make_below() {
  const auto spec = parse_device(given_);
  dram_below_options options;
  options.dram = needs_.dram;
  options.on = device_;
  options.device = device_name_;
  options.number = tier_;
  options.epoch = needs_.epoch;
  options.path = &needs_.path;
  options.copies = &needs_.copies;
  options.asks_tiers =
      std::ranges::any_of(edges_of(*needs_.config), [](const blocks::edge_options& each) { return !each.hinted; });
  options.drain_after = spec ? drain_time(*spec, *needs_.config) : std::chrono::milliseconds(0);
  options.on_lost = [this](const std::string& why) { lost(why); };
  const auto made = needs_.system.spawn<dram_below>(std::move(options));
  return {"the way from " + device_name_ + " to DRAM", caf::actor_cast<lower_tier_actor>(made),
          dram_below::tick_interval};
}

void device_host::lost(const std::string& why) {
  log_error(logger("gpu"), "a device failed: its tier is away until the next worker, its engines use DRAM",
            {{"device", device_name_}, {"reason", why}});
  say(device_phase::away, why);
}

void device_host::say(device_phase phase, const std::string& why) {
  needs_.tell({.tier = tier_, .device = device_name_, .phase = phase, .why = why}, {}, {});
}

void device_host::make_provisioner() {
  blocks::provisioner_options options;
  options.populate = false;
  options.huge_pages = false;
  options.on_exception = [count = needs_.exceptions](const std::string& what) {
    ++*count;
    log_error(logger("gpu"), "memory was not prepared", {{"reason", what}});
  };
  options.make_elsewhere = [this](const blocks::slab_description& slab) { return make_slab(slab); };
  auto kept = slabs_kept_by(needs_.keeper);
  provisioner_ = std::make_unique<blocks::provisioner>(
      options, std::move(kept.keep), std::move(kept.drop),
      [top = std::shared_future(top_.get_future())](blocks::slab_outcome outcome) {
        caf::anon_send(top.get(), slab_atom_v, std::make_shared<blocks::slab_outcome>(std::move(outcome)));
      },
      blocks::transfer_hooks{}, std::move(kept.forget));
}

result<memory::slab_mapping> device_host::make_slab(const blocks::slab_description& slab) const {
  auto made = device_->make(slab.segment_bytes());
  if (!made) return std::unexpected(made.error().in(device_name_));
  return memory::slab_mapping(std::move(made->mapping), made->bytes, std::move(made->descriptor));
}

/// The descriptor is kept beside the mapping: clients are given it.
result<memory::slab_mapping> device_host::map_slab(unique_fd fd, std::uint64_t bytes) const {
  auto own = fd.duplicate();
  if (!own) return std::unexpected(own.error());
  auto mapped = device_->map(std::move(fd), bytes);
  if (!mapped) return std::unexpected(mapped.error().in(device_name_));
  return memory::slab_mapping(std::move(mapped->mapping), mapped->bytes, std::move(*own));
}

}  // namespace cenote
