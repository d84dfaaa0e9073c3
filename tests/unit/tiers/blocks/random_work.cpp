#include "tests/unit/tiers/blocks/random_work.hpp"

#include <algorithm>

namespace cenote::blocks::testing {

using memory::block_ref;
using memory::completion;
using memory::completion_kind;
using memory::operation;
using memory::submission;

namespace {

std::string refused(const completion& answer, const char* what) {
  const auto code = static_cast<error_code>(answer.code);
  if (code == error_code::ok || code == error_code::no_space) return {};
  return std::string(what) + " was refused: " + std::string(to_string(code));
}

}  // namespace

full_key random_work::any_key() {
  const std::uint64_t n = random_() % keys_;
  return key_of(n, 8 + n % 57);
}

std::string random_work::put(std::size_t who) {
  std::vector<full_key> keys(1 + random_() % 8);
  for (full_key& key : keys) key = any_key();
  return refused(clients_[who]->put(keys), "put");
}

std::string random_work::reserve(std::size_t who) {
  client& by = *clients_[who];
  const std::uint64_t all = at_.instances.at(by.in).spec.groups[0].all_parts();
  const std::uint64_t parts = std::max<std::uint64_t>(1, random_() % (all + 1));
  const full_key key = any_key();
  const completion got = by.reserve(key, parts);
  if (got.kind == completion_kind::reserved) {
    writing_.push_back({who, {block_ref::from_bits(got.block), got.grant_version}, key, parts});
    if (on_writing) on_writing(writing_.back(), true);
  }
  return got.kind == completion_kind::refused ? refused(got, "reserve") : std::string();
}

void random_work::fill_part(const client& client, const held& what) {
  // Parts of whole pages: each session writes its own, all together they are the block's contents.
  std::vector<std::byte> whole(client.block_bytes);
  fill(whole.data(), whole.size(), what.key);
  const group_spec& group = at_.instances.at(client.in).spec.groups[0];
  for (std::size_t part = 0; part < group.parts.size(); ++part) {
    if ((what.parts >> part & 1) == 0) continue;
    std::memcpy(at_.bytes(client.in, what.block.ref) + group.part_offset(part), whole.data() + group.part_offset(part),
                group.parts[part].bytes);
  }
}

std::string random_work::finish_one() {
  if (writing_.empty()) return {};
  const std::size_t i = random_() % writing_.size();
  const held what = writing_[i];
  writing_.erase(writing_.begin() + static_cast<std::ptrdiff_t>(i));
  client& by = *clients_[what.who];
  const bool gives_up = random_() % 4 == 0;
  if (!gives_up) fill_part(by, what);
  if (on_writing) on_writing(what, false);
  if (gives_up) {
    by.ask({by.entry_of(operation::release, what.block, what.parts)});
    return {};
  }
  const auto code = static_cast<error_code>(by.finish(what.block, what.parts).code);
  if (code == error_code::ok || code == error_code::revoked) return {};
  return "finish was refused: " + std::string(to_string(code));
}

void random_work::forget(std::size_t who) {
  std::erase_if(writing_, [&](const held& each) { return each.who == who; });
  std::erase_if(pins_, [&](const pinned& each) { return each.who == who; });
}

std::string random_work::replace_session(std::size_t who) {
  const instance_number in = clients_[who]->in;
  if (random_() % 2 == 0) at_.tier->disconnect_session(clients_[who]->number, at_.now);
  at_.bury(clients_[who]->number);
  forget(who);
  clients_[who] = std::make_unique<client>(at_, in, 32);
  return {};
}

std::string random_work::step() {
  const std::size_t who = random_() % clients_.size();
  client& by = *clients_[who];
  switch (random_() % 32) {
    case 0: by.remove(any_key()); return {};
    case 1: by.grant(random_() % 16); return {};
    case 2:
      if (const auto got = by.take()) by.ask({by.entry_of(operation::release, *got)});
      return {};
    case 3: at_.now += tenths(random_() % 20); return {};
    case 4:
      at_.now += tenths(1);
      at_.tier->tick(at_.now);
      return {};
    case 5: at_.tier->evict_ahead(at_.now); return {};
    case 6: return may_drop_sessions && random_() % 16 == 0 ? replace_session(who) : std::string();
    case 7:
      if (random_() % 64 == 0) by.ask({by.entry_of(operation::clear, blank{})});
      return {};
    case 8:
    case 9: return reserve(who);
    case 10:
    case 11:
    case 12: return finish_one();
    case 13: {
      const full_key key = any_key();
      if (const auto slot = by.pin(key)) pins_.push_back({who, *slot, key});
      return {};
    }
    case 14:
    case 15: {
      if (pins_.empty()) return {};
      const std::size_t i = random_() % pins_.size();
      const pinned what = pins_[i];
      pins_.erase(pins_.begin() + static_cast<std::ptrdiff_t>(i));
      const client& reader = *clients_[what.who];
      const bool right = holds(reader.pinned_bytes(what.slot), reader.block_bytes, what.key);
      clients_[what.who]->unpin(what.slot);
      return right ? std::string() : "a pinned block changed";
    }
    case 16:
    case 17: {
      const std::array chain{any_key(), any_key(), any_key()};
      by.touch(chain);
      return {};
    }
    case 18:
    case 19:
    case 20:
    case 21: return by.read(any_key()) == look::wrong ? "a wrong byte was read" : std::string();
    case 22: by.keep(std::array{any_key(), any_key()}, random_() % 2 == 0); return {};
    case 23: {
      constexpr std::array<const char*, 5> policies{"lru", "tblru", "arc", "s3fifo", "mq"};
      if (random_() % 16 != 0) return {};
      return at_.tier->set_policy(policies[random_() % policies.size()], at_.now) ? "" : "a policy is unknown";
    }
    default: return put(who);
  }
}

std::string random_work::after_restart() {
  for (const pinned& each : pins_) {  // reads under way go on
    const client& reader = *clients_[each.who];
    if (!holds(reader.pinned_bytes(each.slot), reader.block_bytes, each.key))
      return "a pinned block changed at the restart";
  }
  for (const auto& each : clients_) {
    if (auto back = at_.tier->reattach_session(each->number, std::span<const held_parts>{}); !back)
      return back.error().describe();
  }
  // Blocks that were taken and never committed are given back.
  for (const auto& each : clients_) {
    const auto memory = at_.session(each->number);
    for (std::size_t i = 0; i < memory::session_memory::grants; ++i) {
      const std::uint64_t word = memory.grant(i).word.load();
      if (memory::grant_slot::state_of(word) != memory::grant_slot::taken) continue;
      const blank block{block_ref::from_bits(memory.grant(i).block.load()), memory::grant_slot::version_of(word)};
      if (auto wrong = refused(each->ask({each->entry_of(operation::release, block)}), "release"); !wrong.empty())
        return wrong;
    }
  }
  writing_.clear();
  return {};
}

void random_work::unpin_all() {
  for (const auto& each : clients_) {
    for (std::uint32_t slot = 0; slot < at_.session(each->number).pin_slots(); ++slot) each->unpin(slot);
  }
  pins_.clear();
}

std::int64_t random_work::read_all() {
  std::int64_t hits = 0;
  for (const auto& each : clients_) {
    for (std::uint64_t n = 0; n < keys_; ++n) {
      const look seen = each->read(key_of(n, 8 + n % 57));
      if (seen == look::wrong) return -1;
      hits += seen == look::right ? 1 : 0;
    }
  }
  return hits;
}

}  // namespace cenote::blocks::testing
