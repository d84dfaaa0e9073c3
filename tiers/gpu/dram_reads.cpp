// The way up: pin, bring up what is below DRAM, copy. And questions.
#include <algorithm>
#include <utility>

#include "core/byte_io.hpp"
#include "memory/prefetch_terms.hpp"
#include "tiers/gpu/dram_guest.hpp"
#include "tiers/gpu/entries.hpp"
#include "tiers/gpu/key_runs.hpp"

namespace cenote::gpu {

using memory::completion;
using memory::completion_kind;
using memory::operation;
using memory::submission;

void dram_guest::fetch(std::span<const transfer> blocks) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<bound_ptr, std::vector<moving>>> by_group;
  for (const transfer& each : blocks) {
    const bound_ptr of = find(each.instance);
    if (!of || is_lost() || !of->has(each)) {
      conclude(each, transfer_result::missing);
      continue;
    }
    auto& [its, moves] = by_group[{each.instance, each.group}];
    its = of;
    moves.push_back({.what = each});
  }
  for (auto& [group, wanted] : by_group) begin_fetch(wanted.first, std::move(wanted.second));
  flush();
}

void dram_guest::begin_fetch(const bound_ptr& of, std::vector<moving> blocks) {
  const std::uint32_t group = blocks.front().what.group;
  const std::uint64_t serial = add(reads_, {.of = of,
                                            .group = group,
                                            .blocks = std::move(blocks),
                                            .at = stage::opening,
                                            .until = hooks_.now() + transfer_limit});
  with_open(of, [this, serial](const result<void>& how) {
    if (how) return lend(serial, true);
    if (const auto found = reads_.find(serial); found != reads_.end()) {
      end_all(found->second, transfer_result::missing);
      reads_.erase(found);
    }
  });
}

/// Pins what is here and has it copied; the rest comes up first, once.
void dram_guest::lend(std::uint64_t serial, bool may_bring_up) {
  const auto found = reads_.find(serial);
  if (found == reads_.end()) return;  // it was overdue
  batch& of = found->second;
  std::vector<moving> absent = pin_present(of);
  const bound_ptr instance = of.of;
  const std::uint32_t group = of.group;
  if (of.blocks.empty()) {
    reads_.erase(found);
  } else {
    of.at = stage::placing;
    of.until = hooks_.now() + transfer_limit;
    touch(of);
    room_.find_slabs(instance->session->instance, slabs_of(of),
                     [this, serial](const std::vector<memory::slab_place>& places) {
                       place_read(serial, places);
                       flush();
                     });
  }
  if (may_bring_up) return seek_below(instance, group, std::move(absent));
  for (moving& each : absent) end(each, transfer_result::missing);
}

/// Leaves those in the batch that it pinned, and returns the others.
std::vector<dram_guest::moving> dram_guest::pin_present(batch& of) {
  std::vector<moving> here, absent;
  each_run(keys_of(of.blocks), [&](std::size_t first, const key_batch& run) {
    std::vector<memory::pin> pins(run.count);
    for (std::size_t next = 0; next < run.count;) {
      const key_batch rest{run[next].data(), run.count - next, run.width};
      const std::size_t held = of.of->session->lookup.pin_prefix(rest, of.group, std::span(pins).subspan(next))
                                   .value_or(0);  // no slot is free: as if it were not here
      for (const std::size_t end = next + held; next < end; ++next) {
        moving& one = here.emplace_back(std::move(of.blocks[first + next]));
        one.pin = pins[next];
        one.block = pins[next].block;
      }
      if (next < run.count) absent.push_back(std::move(of.blocks[first + next++]));
    }
  });
  of.blocks = std::move(here);
  return absent;
}

/// What no tier below DRAM says to have is missing, unless one says so only when it is asked.
void dram_guest::seek_below(const bound_ptr& of, std::uint32_t group, std::vector<moving> absent) {
  std::vector<std::uint8_t> below(absent.size(), options_.asks_tiers ? 1 : 0);
  each_run(keys_of(absent), [&](std::size_t first, const key_batch& run) {
    of->session->lookup.add_lower(run, group, std::span(below).subspan(first, run.count));
  });
  std::vector<moving> wanted;
  for (std::size_t i = 0; i < absent.size(); ++i) {
    if (below[i] != 0)
      wanted.push_back(std::move(absent[i]));
    else
      end(absent[i], transfer_result::missing);
  }
  if (!wanted.empty()) bring_up(of, group, std::move(wanted));
}

void dram_guest::bring_up(const bound_ptr& of, std::uint32_t group, std::vector<moving> wanted) {
  std::vector<submission> entries;
  entries.reserve(wanted.size());
  for (const moving& each : wanted) entries.push_back(entry_of(operation::prefetch, group, each.what.full.view()));
  close_request(entries);
  memory::prefetch_terms terms;
  terms.policy = prefetch_policy::wait_complete;
  terms.prefill_rate = 0;  // who asks has decided already that it is worth it
  terms.threshold_tokens = 0;
  terms.pack(entries.back());
  counters_.brought_up += wanted.size();
  const std::uint64_t serial = add(reads_, {.of = of,
                                            .group = group,
                                            .blocks = std::move(wanted),
                                            .at = stage::bringing,
                                            .until = hooks_.now() + transfer_limit});
  room_.run(of->session->number, std::move(entries), true, [this, serial](const std::vector<completion>&) {
    lend(serial, false);
    flush();
  });
}

/// To the policies of DRAM a read for a device is a read.
void dram_guest::touch(const batch& of) {
  std::vector<submission> entries;
  const std::span all(of.blocks);
  for (std::size_t first = 0; first < all.size(); first += memory::touch_runs::capacity) {
    byte_writer runs;
    for (const moving& each : all.subspan(first, std::min(memory::touch_runs::capacity, all.size() - first)))
      runs.put(memory::touch_runs::make(each.block, 1));
    entries.push_back(entry_of(operation::touch, of.group, runs.bytes()));
  }
  close_request(entries);
  room_.run(of.of->session->number, std::move(entries), false, [](const std::vector<completion>&) {});
}

void dram_guest::place_read(std::uint64_t serial, std::span<const memory::slab_place> slabs) {
  const auto found = reads_.find(serial);
  if (found == reads_.end()) return;  // it was overdue
  batch& of = found->second;
  std::erase_if(of.blocks, [&](moving& each) {
    if (!is_lost() && part_in(of, each, slabs) != nullptr) return false;
    of.of->session->lookup.unpin(std::span(&each.pin, 1));
    end(each, transfer_result::missing);
    return true;
  });
  if (of.blocks.empty()) {
    reads_.erase(found);
    return;
  }
  std::vector<copy_run> runs;
  runs.reserve(of.blocks.size());
  for (const moving& each : of.blocks)
    runs.push_back({each.what.memory.data(), part_in(of, each, slabs), of.of->part_bytes(of.group)});
  of.at = stage::copying;
  of.until = hooks_.now() + transfer_limit;
  begin_copy(copy_way::up, std::move(runs), slabs, [this, serial](const copy_end& end) { copied_up(serial, end); });
}

void dram_guest::copied_up(std::uint64_t serial, const copy_end& end) {
  batch& of = reads_.at(serial);
  if (has_taken_its_memory(of, end)) return;
  const bool is_done = end.how == copy_end::kind::done;
  unpin(of);
  if (is_done) {
    counters_.read += of.blocks.size();
    counters_.read_bytes += of.blocks.size() * of.of->part_bytes(of.group);
  }
  end_all(of, is_done ? transfer_result::done : transfer_result::failed);
  reads_.erase(serial);
}

void dram_guest::unpin(const batch& of) {
  for (const moving& each : of.blocks) of.of->session->lookup.unpin(std::span(&each.pin, 1));
}

void dram_guest::read_is_overdue(std::uint64_t serial) {
  batch& of = reads_.at(serial);
  of.until = steady_time::max();
  if (of.at == stage::copying) {
    if (!std::exchange(of.is_stuck, true)) lose("a copy from DRAM has not ended in time");
    return;
  }
  if (of.at == stage::placing) unpin(of);
  end_all(of, transfer_result::missing);
  reads_.erase(serial);
}

// ---------------------------------------------------------------------------------------------- questions

void dram_guest::locate(key_query asked, std::function<void(key_answer)> then) {
  const bound_ptr of = find(asked.instance);
  std::vector<bool> held(asked.keys.size());
  if (!of || is_lost() || asked.group >= of->share->whole.groups.size() || asked.keys.empty())
    return then({.held = std::move(held)});
  const std::uint64_t serial = next_serial_++;
  const steady_time until = hooks_.now() + asked.patience + grace;
  questions_.emplace(serial, question{of, std::move(asked), std::move(held), until, std::move(then)});
  with_open(of, [this, serial](const result<void>& how) {
    if (how) return look(serial);
    answer_question(serial, 0, 0);
  });
}

/// What is in DRAM, and what tiers below say to have.
void dram_guest::look(std::uint64_t serial) {
  const auto found = questions_.find(serial);
  if (found == questions_.end()) return;
  question& one = found->second;
  std::vector<std::uint8_t> here(one.asked.keys.size());
  each_run(one.asked.keys, [&](std::size_t first, const key_batch& run) {
    const auto part = std::span(here).subspan(first, run.count);
    one.of->session->lookup.find_each(run, one.asked.group, part);
    one.of->session->lookup.add_lower(run, one.asked.group, part);
  });
  for (std::size_t i = 0; i < here.size(); ++i) one.held[i] = here[i] != 0;
  const auto first = static_cast<std::size_t>(std::ranges::find(one.held, false) - one.held.begin());
  if (!options_.asks_tiers || first == one.held.size()) return answer_question(serial, 0, 0);
  ask_below(serial, first);
}

/// How far the chain goes on from the first key that is nowhere, as DRAM hears from tiers that have to be asked.
void dram_guest::ask_below(std::uint64_t serial, std::size_t first) {
  const question& one = questions_.at(serial);
  std::vector<submission> entries;
  for (const full_key& each : std::span(one.asked.keys).subspan(first))
    entries.push_back(entry_of(operation::locate, one.asked.group, each.view()));
  close_request(entries);
  const auto left = std::max<std::chrono::nanoseconds>(one.until - grace - hooks_.now(), {});
  entries.back().argument = static_cast<std::uint64_t>(left.count());
  room_.run(one.of->session->number, std::move(entries), true,
            [this, serial, first](const std::vector<completion>& how) {
              const auto done = std::ranges::find(how, completion_kind::done, &completion::kind);
              answer_question(serial, first, done == how.end() || done->code != 0 ? 0 : done->value);
              flush();
            });
}

/// The keys from `first` on, `reached` of them, are somewhere, too.
void dram_guest::answer_question(std::uint64_t serial, std::size_t first, std::uint64_t reached) {
  const auto found = questions_.find(serial);
  if (found == questions_.end()) return;
  question one = std::move(found->second);
  questions_.erase(found);
  for (std::size_t i = first; i < one.held.size() && i - first < reached; ++i) one.held[i] = true;
  one.then({.held = std::move(one.held)});
}

}  // namespace cenote::gpu
