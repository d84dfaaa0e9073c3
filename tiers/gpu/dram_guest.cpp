// Instances, and what both ways have in common.
#include "tiers/gpu/dram_guest.hpp"

#include <algorithm>

namespace cenote::gpu {

/// Who waits for an instance keeps it.
dram_guest::~dram_guest() {
  for (const auto& [number, of] : bound_) of->when_open.clear();
  for (const bound_ptr& of : leaving_) of->when_open.clear();
}

// ---------------------------------------------------------------------------------------------- instances

void dram_guest::bind(std::uint32_t number, instance_spec spec, std::shared_ptr<const instance_share> share) {
  unbind(number);
  auto made = std::make_shared<bound>();
  made->number = number;
  made->spec = std::move(spec);
  made->share = std::move(share);
  bound_.emplace(number, made);
  if (made->share && !is_lost()) with_open(made, [](const result<void>&) {});
  flush();
}

/// Its session ends when nothing of it is under way any more.
void dram_guest::unbind(std::uint32_t number) {
  const auto found = bound_.find(number);
  if (found == bound_.end()) return;
  const bound_ptr of = found->second;
  bound_.erase(found);
  drop_waiting(*of);
  leaving_.push_back(of);
  flush();
}

dram_guest::bound_ptr dram_guest::find(std::uint32_t number) const {
  const auto found = bound_.find(number);
  return found == bound_.end() || !found->second->share ? nullptr : found->second;
}

/// Calls at once if it is open; else when that is known.
void dram_guest::with_open(const bound_ptr& of, std::function<void(const result<void>&)> then) {
  if (of->session) return then({});
  if (!of->is_opening && hooks_.now() < of->open_again_at)
    return then(fail(error_code::closed, "DRAM has refused the instance a moment ago"));
  of->when_open.push_back(std::move(then));
  if (std::exchange(of->is_opening, true)) return;
  room_.open(of->share->whole, [this, of](result<cluster::guest_session_ptr> how) { opened(of, std::move(how)); });
}

void dram_guest::opened(const bound_ptr& of, result<cluster::guest_session_ptr> how) {
  of->is_opening = false;
  if (how) {
    of->session = std::move(*how);
  } else {
    of->open_again_at = hooks_.now() + open_again;
    drop_waiting(*of);
  }
  const result<void> status = how ? result<void>() : std::unexpected(how.error());
  for (const auto& each : std::exchange(of->when_open, {})) each(status);
  pump_writes();
  flush();
}

void dram_guest::close_unused() {
  std::erase_if(leaving_, [&](const bound_ptr& each) {
    if (each.use_count() > 1 || each->is_opening) return false;
    if (each->session) room_.close(each->session->number);
    return true;
  });
}

// ---------------------------------------------------------------------------------------------- both ways

std::uint64_t dram_guest::add(batches& to, batch what) {
  const std::uint64_t serial = next_serial_++;
  to.emplace(serial, std::move(what));
  return serial;
}

void dram_guest::end(moving& one, transfer_result what) {
  if (!std::exchange(one.is_told, true)) conclude(one.what, what);
}

void dram_guest::conclude(const transfer& one, transfer_result what) {
  outcomes_.push_back({.token = one.token, .what = what});
  counters_.dropped += what == transfer_result::dropped ? 1 : 0;
  counters_.missing += what == transfer_result::missing ? 1 : 0;
  counters_.failed += what == transfer_result::failed ? 1 : 0;
}

/// Those that wait for the instance, or for room.
void dram_guest::drop_waiting(bound& of) {
  for (const waiting_write& each : std::exchange(of.writes, {})) conclude(each.what, transfer_result::dropped);
}

void dram_guest::end_all(batch& of, transfer_result what) {
  for (moving& each : of.blocks) end(each, what);
}

std::vector<std::uint32_t> dram_guest::slabs_of(const batch& of) const {
  std::vector<std::uint32_t> slabs;
  slabs.reserve(of.blocks.size());
  for (const moving& each : of.blocks) slabs.push_back(each.block.slab());
  std::ranges::sort(slabs);
  slabs.erase(std::unique(slabs.begin(), slabs.end()), slabs.end());
  return slabs;
}

/// Where the part of the device lies in the block. Null: its slab is not what it should be.
std::byte* dram_guest::part_in(const batch& of, const moving& one, std::span<const memory::slab_place> slabs) {
  const group_spec& group = of.of->whole(of.group);
  const auto slab = std::ranges::find(slabs, one.block.slab(), &memory::slab_place::index);
  const std::uint64_t number = one.block.block();
  if (slab == slabs.end() || number >= slab->count || slab->stride != group.stride()) return nullptr;
  if (one.what.memory.size() < of.of->part_bytes(of.group)) return nullptr;
  return slab->memory + slab->stride * number + group.part_offset(of.of->part(of.group));
}

std::vector<std::span<std::byte>> dram_guest::memory_of(std::span<const memory::slab_place> slabs) {
  std::vector<std::span<std::byte>> memory;
  memory.reserve(slabs.size());
  for (const memory::slab_place& each : slabs) memory.emplace_back(each.memory, each.stride * each.count);
  return memory;
}

void dram_guest::begin_copy(copy_way way, std::vector<copy_run> runs, std::span<const memory::slab_place> slabs,
                            copies::then ended) {
  hooks_.copy(way, std::move(runs), memory_of(slabs), [this, ended = std::move(ended)](const copy_end& end) {
    ended(end);
    pump_writes();
    flush();
  });
}

/// What of a copy still comes, nobody can say: its memory stays where it is, for good.
bool dram_guest::has_taken_its_memory(batch& of, const copy_end& end) {
  using enum copy_end::kind;
  if (of.is_stuck) return true;
  const bool is_away = device_.state() == standing::away;
  of.is_stuck = end.how == unknown || (end.how == failed && is_away);
  if (end.how == unknown)
    lose("the end of a copy is not to be known: " + end.why);
  else if (of.is_stuck)
    lose("a copy failed: " + end.why);
  else if (end.how == refused && is_away)
    lose(end.why);
  return of.is_stuck;
}

/// Keys of what was under way are free again; its memory, and what is pinned, is not.
void dram_guest::lose(const std::string& why) {
  if (is_lost()) return;
  lost_ = why.empty() ? "it failed" : why;
  for (const auto& [number, of] : bound_) {
    drop_waiting(*of);
    if (of->session) room_.disconnect(of->session->number);
  }
  for (const bound_ptr& of : leaving_) {
    if (of->session) room_.disconnect(of->session->number);
  }
  hooks_.lost(lost_);
}

void dram_guest::flush() {
  close_unused();
  if (!outcomes_.empty()) hooks_.ended(std::exchange(outcomes_, {}));
}

void dram_guest::advance(steady_time now) {
  if (!is_lost() && device_.state() == standing::away) lose("the device is away");
  const auto overdue = [&](const auto& in) {
    std::vector<std::uint64_t> late;
    for (const auto& [serial, each] : in) {
      if (each.until <= now) late.push_back(serial);
    }
    return late;
  };
  for (const auto& [number, of] : bound_) {
    while (!of->writes.empty() && of->writes.front().until <= now) {
      conclude(of->writes.front().what, transfer_result::dropped);
      of->writes.pop_front();
    }
  }
  for (const std::uint64_t serial : overdue(writes_)) write_is_overdue(serial);
  for (const std::uint64_t serial : overdue(reads_)) read_is_overdue(serial);
  for (const std::uint64_t serial : overdue(questions_)) answer_question(serial, 0, 0);
  for (const std::uint64_t serial : overdue(removals_)) {
    removals_.at(serial).open = 1;
    settle(serial, fail(error_code::removal_pending, "DRAM has not answered whether it has forgotten"));
  }
  pump_writes();
  flush();
}

guest_counters dram_guest::counters() const {
  guest_counters all = counters_;
  const auto count = [&](const batches& in) {
    for (const auto& [serial, each] : in)
      all.under_way += static_cast<std::uint64_t>(
          std::ranges::count_if(each.blocks, [](const moving& one) { return !one.is_told; }));
  };
  count(writes_);
  count(reads_);
  for (const auto& [number, of] : bound_) all.under_way += of->writes.size();
  return all;
}

}  // namespace cenote::gpu
