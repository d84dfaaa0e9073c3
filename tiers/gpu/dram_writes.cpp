// The way down: reserve, copy, finish.
#include <algorithm>
#include <utility>

#include "tiers/gpu/dram_guest.hpp"
#include "tiers/gpu/entries.hpp"
#include "tiers/gpu/key_runs.hpp"

namespace cenote::gpu {

using memory::completion;
using memory::completion_kind;
using memory::operation;
using memory::submission;

namespace {

std::vector<std::uint8_t> present_of(const cluster::guest_session& session, std::uint32_t group,
                                     std::span<const full_key> keys) {
  std::vector<std::uint8_t> present(keys.size());
  each_run(keys, [&](std::size_t first, const key_batch& run) {
    session.lookup.find_each(run, group, std::span(present).subspan(first, run.count));
  });
  return present;
}

}  // namespace

void dram_guest::write(std::span<const transfer> blocks) {
  const steady_time until = hooks_.now() + transfer_limit;
  std::vector<bound_ptr> touched;
  for (const transfer& each : blocks) {
    const bound_ptr of = find(each.instance);
    if (!of || is_lost() || !of->has(each)) {
      conclude(each, transfer_result::dropped);
      continue;
    }
    of->writes.push_back({each, until});
    if (std::ranges::find(touched, of) == touched.end()) touched.push_back(of);
  }
  for (const bound_ptr& of : touched) {
    with_open(of, [this, of](const result<void>& how) {
      if (!how) drop_waiting(*of);
    });
  }
  pump_writes();
  flush();
}

void dram_guest::pump_writes() {
  for (const auto& [number, of] : bound_) {
    while (begin_writes(of)) {
    }
  }
}

/// One batch of those that wait, as far as the window has room. False: nothing was taken.
bool dram_guest::begin_writes(const bound_ptr& of) {
  if (!of->session || of->writes.empty() || is_lost()) return false;
  const std::uint32_t group = of->writes.front().what.group;
  const std::uint64_t room = options_.window - std::min(options_.window, reserved_);
  const std::uint64_t most = std::max<std::uint64_t>(room / of->whole(group).stride(), reserved_ == 0 ? 1 : 0);
  if (most == 0) return false;
  batch made{.of = of,
             .group = group,
             .blocks = take_waiting(*of, std::min<std::uint64_t>(most, most_in_batch)),
             .at = stage::reserving,
             .until = hooks_.now() + transfer_limit};
  drop_present(made);
  if (!made.blocks.empty()) reserve(add(writes_, std::move(made)));
  return true;
}

/// The first ones of one group.
std::vector<dram_guest::moving> dram_guest::take_waiting(bound& of, std::size_t most) {
  std::vector<moving> taken;
  const std::uint32_t group = of.writes.front().what.group;
  while (!of.writes.empty() && taken.size() < most && of.writes.front().what.group == group) {
    taken.push_back({.what = of.writes.front().what});
    of.writes.pop_front();
  }
  return taken;
}

/// What DRAM has whole needs no copy.
void dram_guest::drop_present(batch& of) {
  const auto present = present_of(*of.of->session, of.group, keys_of(of.blocks));
  std::size_t i = 0;
  std::erase_if(of.blocks, [&](moving& each) {
    const bool is_here = present[i++] != 0;
    if (is_here) {
      ++counters_.present;
      end(each, transfer_result::done);
    }
    return is_here;
  });
}

void dram_guest::reserve(std::uint64_t serial) {
  const batch& of = writes_.at(serial);
  std::vector<submission> entries;
  entries.reserve(of.blocks.size());
  for (const moving& each : of.blocks)
    entries.emplace_back(entry_of(operation::reserve, of.group, each.what.full.view())).argument =
        of.of->mask(of.group);
  close_request(entries);
  reserved_ += of.of->whole(of.group).stride() * of.blocks.size();
  room_.run(of.of->session->number, std::move(entries), false, [this, serial](const std::vector<completion>& how) {
    reserved(serial, how);
    pump_writes();
    flush();
  });
}

void dram_guest::reserved(std::uint64_t serial, const std::vector<completion>& how) {
  batch& of = writes_.at(serial);
  std::vector<const completion*> by_index(of.blocks.size());
  for (const completion& each : how) {
    if (each.kind != completion_kind::done && each.index < by_index.size()) by_index[each.index] = &each;
  }
  std::size_t i = 0;
  std::erase_if(of.blocks, [&](moving& each) {
    const completion* const got = by_index[i++];
    const auto kind = got == nullptr ? completion_kind::refused : got->kind;
    if (kind == completion_kind::reserved) {
      each.block = memory::block_ref::from_bits(got->block);
      each.grant_version = got->grant_version;
      return false;
    }
    reserved_ -= of.of->whole(of.group).stride();
    counters_.present += kind == completion_kind::present ? 1 : 0;
    end(each, kind == completion_kind::present ? transfer_result::done : transfer_result::dropped);
    return true;
  });
  if (erase_if_empty(serial)) return;
  of.at = stage::placing;
  of.until = hooks_.now() + transfer_limit;
  room_.find_slabs(of.of->session->instance, slabs_of(of),
                   [this, serial](const std::vector<memory::slab_place>& found) {
                     place_write(serial, found);
                     pump_writes();
                     flush();
                   });
}

/// It is known where they lie.
void dram_guest::place_write(std::uint64_t serial, std::span<const memory::slab_place> slabs) {
  const auto found = writes_.find(serial);
  if (found == writes_.end() || found->second.at != stage::placing) return;  // it was overdue
  batch& of = found->second;
  for (moving& each : of.blocks) each.is_unwanted |= is_lost() || part_in(of, each, slabs) == nullptr;
  give_back(of, transfer_result::dropped, true);
  if (erase_if_empty(serial)) return;
  std::vector<copy_run> runs;
  runs.reserve(of.blocks.size());
  for (const moving& each : of.blocks)
    runs.push_back({part_in(of, each, slabs), each.what.memory.data(), of.of->part_bytes(of.group)});
  of.at = stage::copying;
  of.until = hooks_.now() + transfer_limit;
  begin_copy(copy_way::down, std::move(runs), slabs, [this, serial](const copy_end& end) { copied_down(serial, end); });
}

void dram_guest::copied_down(std::uint64_t serial, const copy_end& end) {
  batch& of = writes_.at(serial);
  if (has_taken_its_memory(of, end)) {
    if (end.how == copy_end::kind::failed) end_all(of, transfer_result::failed);
    return;
  }
  const bool is_done = end.how == copy_end::kind::done;
  give_back(of, is_done ? transfer_result::dropped : transfer_result::failed, is_done);
  if (!erase_if_empty(serial)) finish(serial);
}

/// The block's sum is the device's part's where that is all of it.
void dram_guest::finish(std::uint64_t serial) {
  batch& of = writes_.at(serial);
  const group_spec& whole = of.of->whole(of.group);
  const bool is_all = whole.parts.size() == 1 && whole.stride() == whole.block_bytes();
  std::vector<submission> entries;
  entries.reserve(of.blocks.size());
  for (const moving& each : of.blocks) {
    submission& entry = entries.emplace_back(entry_of(operation::finish, of.group));
    entry.block = each.block.bits;
    entry.grant_version = each.grant_version;
    entry.argument = of.of->mask(of.group);
    entry.parent = count_of(each.what.arrival);
    entry.flags |= submission::flag_arrival;
    if (!is_all || !each.what.checksum) continue;
    entry.detail = *each.what.checksum;
    entry.flags |= submission::flag_checksum;
  }
  separate_requests(entries);
  of.at = stage::finishing;
  of.until = hooks_.now() + transfer_limit;
  room_.run(of.of->session->number, std::move(entries), false, [this, serial](const std::vector<completion>& how) {
    finished(serial, how);
    pump_writes();
    flush();
  });
}

/// Whole are blocks whose last part this was, and those that somebody else has stored meanwhile.
void dram_guest::finished(std::uint64_t serial, const std::vector<completion>& how) {
  const auto found = writes_.find(serial);
  batch of = std::move(found->second);
  writes_.erase(found);
  std::vector<std::uint8_t> whole(of.blocks.size());
  for (const completion& each : how) {
    if (each.kind == completion_kind::done && each.request < whole.size()) whole[each.request] = each.value == 1;
  }
  const auto present = present_of(*of.of->session, of.group, keys_of(of.blocks));
  const std::uint64_t stride = of.of->whole(of.group).stride();
  for (std::size_t i = 0; i < of.blocks.size(); ++i) {
    moving& each = of.blocks[i];
    reserved_ -= stride;
    ++counters_.written;
    counters_.written_bytes += of.of->part_bytes(of.group);
    const bool is_there = !each.is_unwanted && (whole[i] != 0 || present[i] != 0);
    end(each, is_there ? transfer_result::done : transfer_result::dropped);
  }
  for (const auto& each : of.when_finished) each();
}

/// Ends those that are unwanted, or all, and releases what was reserved for them. Nothing writes there any more.
void dram_guest::give_back(batch& of, transfer_result what, bool unwanted_only) {
  std::vector<submission> entries;
  std::erase_if(of.blocks, [&](moving& each) {
    if (unwanted_only && !each.is_unwanted) return false;
    submission& entry = entries.emplace_back(entry_of(operation::release, of.group));
    entry.block = each.block.bits;
    entry.grant_version = each.grant_version;
    entry.argument = of.of->mask(of.group);
    end(each, what);
    return true;
  });
  if (entries.empty()) return;
  separate_requests(entries);
  const std::uint64_t bytes = of.of->whole(of.group).stride() * entries.size();
  room_.run(of.of->session->number, std::move(entries), false,
            [this, bytes, of = of.of](const std::vector<completion>&) {
              reserved_ -= bytes;
              pump_writes();
              flush();
            });
}

bool dram_guest::erase_if_empty(std::uint64_t serial) {
  const auto found = writes_.find(serial);
  if (!found->second.blocks.empty()) return false;
  writes_.erase(found);
  return true;
}

void dram_guest::write_is_overdue(std::uint64_t serial) {
  batch& of = writes_.at(serial);
  of.until = steady_time::max();
  switch (of.at) {
    case stage::copying:
      if (std::exchange(of.is_stuck, true)) return;
      return lose("a copy to DRAM has not ended in time");
    case stage::placing:
      give_back(of, transfer_result::dropped, false);
      writes_.erase(serial);
      return;
    default:  // DRAM has not answered: what comes of it is given back when it does, or removed
      for (moving& each : of.blocks) each.is_unwanted |= of.at == stage::reserving;
      return end_all(of, transfer_result::dropped);
  }
}

}  // namespace cenote::gpu
