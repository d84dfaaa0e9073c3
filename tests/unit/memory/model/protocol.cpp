#include "tests/unit/memory/model/protocol.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace cenote::model {
namespace {

using byte = std::uint8_t;

constexpr byte grant_refused = 0xff;

// A record is one byte here: free, zombie, present(key) or granted(key, writer).
constexpr byte record_free = 0;
constexpr byte record_zombie = 1;
constexpr byte record_present(byte key) noexcept {
  return static_cast<byte>(0x10U | key);
}
constexpr byte record_granted(byte key, byte writer) noexcept {
  return static_cast<byte>(0x20U | (writer << 3U) | key);
}
constexpr bool is_present(byte r) noexcept {
  return (r & 0xf0U) == 0x10U;
}
constexpr bool is_granted(byte r) noexcept {
  return (r & 0xf0U) == 0x20U;
}
constexpr byte record_key(byte r) noexcept {
  return r & 7U;
}
constexpr byte record_writer(byte r) noexcept {
  return (r >> 3U) & 1U;
}

constexpr bool is_odd(byte v) noexcept {
  return (v & 1U) != 0;
}
constexpr bool is_published(byte v) noexcept {
  return v != 0 && !is_odd(v);
}
constexpr byte next_even(byte v) noexcept {
  return static_cast<byte>((v | 1U) + 1U);
}
constexpr byte bit(std::size_t block) noexcept {
  return static_cast<byte>(1U << block);
}
constexpr bool has(byte mask, std::size_t block) noexcept {
  return (mask & bit(block)) != 0;
}

constexpr byte block_of(byte value) noexcept {
  return (value - 1U) & 1U;
}
static_assert(block_count == 2, "one bit of an entry's value names the block");

enum owner_pc : byte {
  recover_key,
  recover_version,
  recover_entry,
  recover_insert,
  pick,
  mark_odd,
  odd_fence,
  scan,
  decide,
  set_aside,
  give,
  grant_place,
  grant_word,
  wait_for_commit,
  fill_block,
  fill_record,
  publish_key,
  publish_version,
  insert_clear,
  insert_key,
  insert_value,
  finished
};
constexpr const char* owner_names[] = {"recover: key beside",
                                       "recover: version",
                                       "recover: clear entry",
                                       "recover: insert",
                                       "pick writer",
                                       "version odd",
                                       "fence",
                                       "scan a slot",
                                       "decide on a block",
                                       "record free/zombie",
                                       "give: record granted",
                                       "give: block of the grant",
                                       "give: grant word",
                                       "wait for commit",
                                       "load: bytes",
                                       "load: record present",
                                       "publish: key beside",
                                       "publish: version even",
                                       "entry value 0",
                                       "entry key",
                                       "entry value",
                                       "finished"};

enum reader_pc : byte {
  read_value,
  read_value_late,  // after the key
  read_key,
  read_value_again,
  pin,
  pin_fence,
  check_version,
  check_version_late,  // after the key
  check_key,
  use_first,
  use_second,
  unpin,
  recheck_version,
  answer,
  read_done,
  reader_dead
};
constexpr const char* reader_names[] = {
    "entry value", "entry value", "entry key",  "entry value again", "slot := block", "fence",         "version",
    "version",     "key beside",  "read bytes", "read bytes again",  "slot := 0",     "version again", "answer",
    "done",        "dead"};

enum writer_pc : byte { take, take_late, take_block, fill, announce, write_done, writer_dead };
constexpr const char* writer_names[] = {"take grant", "take grant", "block of the grant", "fill block", "commit",
                                        "done",       "dead"};

/// Of a step: in program order, or past the load that it comes to.
enum class load_mode : byte { in_order, passed };

/// What one thread sees and does: loads through its own buffer, stores into it.
class view {
 public:
  view(const scenario& with, state& s, std::size_t thread, load_mode mode, outcome& out)
      : with_(with), s_(s), buffer_(s.buffers[thread]), loads_(s.loads[thread]), mode_(mode), out_(out) {}
  bool used_mode() const noexcept { return mode_ == load_mode::in_order; }

  byte load(word_kind kind, std::size_t index) const noexcept {
    const byte from = word(kind, index);
    return buffer_.forward(from, s_.memory[from]);
  }
  /// A load that what follows may pass, if nothing forbids it: gives what is there or, left open, what is hoped for.
  byte load_or_pass(word_kind kind, std::size_t index, byte hope) noexcept {
    if (!passes()) return load(kind, index);
    loads_.push(word(kind, index), hope);
    return hope;
  }
  /// Of a step that may go past its load: whether it does now.
  bool passes() noexcept { return std::exchange(mode_, load_mode::in_order) == load_mode::passed; }
  /// An older load of the word is open, and not to be passed.
  bool is_open(word_kind kind, std::size_t index) const noexcept {
    return mode_ == load_mode::in_order && loads_.has(word(kind, index), loads_.size);
  }
  void store(word_kind kind, std::size_t index, byte value, bool release = false) noexcept {
    buffer_.push(word(kind, index), value, release, loads_.mask());
  }
  void store_release(word_kind kind, std::size_t index, byte value) noexcept { store(kind, index, value, true); }
  bool load_fence_passes() const noexcept { return loads_.size == 0; }
  bool fence_passes() const noexcept { return buffer_.size == 0 && load_fence_passes(); }
  byte value_for(std::size_t block, byte of_version) const noexcept {
    return static_cast<byte>(((of_version & with_.version_mask) << 1U | block) + 1U);
  }
  void saw(event what) noexcept { out_.events |= what; }
  void broke(violation what) noexcept { out_.broken = what; }
  void at(byte pc) noexcept { out_.at = pc; }

 protected:
  const scenario& with_;
  state& s_;

 private:
  store_buffer& buffer_;
  open_loads& loads_;
  load_mode mode_;
  outcome& out_;
};

/// The owner's program. What it alone writes it reads in no step of its own.
class owner_program : public view {
 public:
  owner_program(const scenario& with, state& s, load_mode mode, outcome& out)
      : view(with, s, owner_thread, mode, out), me_(s.owner) {}

  /// Runs to just after the next store, fence or load of somebody else's word. False: it has to wait.
  bool step() {
    for (;;) {
      at(me_.pc);
      switch (me_.pc) {
        case recover_key:
          for (; me_.i < block_count; ++me_.i) {
            const byte r = load(record, me_.i);
            if (!is_present(r) || load(key_beside, me_.i) == record_key(r)) continue;
            store(key_beside, me_.i++, record_key(r));
            return true;
          }
          go(recover_version);
          break;
        case recover_version:
          while (me_.i < block_count)
            if (recover_version_of(me_.i++)) return true;
          go(recover_entry);
          break;
        case recover_entry:
          for (; with_.rule.restart_mends_index && me_.i < block_count; ++me_.i) {
            const byte value = load(entry_value, me_.i);
            if (value == 0 || entry_is_right(me_.i, value)) continue;
            store(entry_value, me_.i++, 0);
            saw(restart_cleared_entry);
            return true;
          }
          go(recover_insert);
          break;
        case recover_insert:
          if (with_.rule.restart_mends_index && me_.i < block_count) {
            const byte block = me_.i++;
            if (is_present(load(record, block)) && !is_indexed(block)) insert(block, recover_insert);
            break;
          }
          if (!with_.rule.restart_scans_pins)
            for (byte b = 0; b < block_count; ++b)
              if (is_idle(load(record, b))) me_.clean |= bit(b);
          go(pick);
          break;
        case pick: return pick_writer();
        case mark_odd:
          for (; me_.i < block_count; ++me_.i) {
            if (!has(me_.condemned, me_.i)) continue;
            store(version, me_.i, load(version, me_.i) | 1U);
            ++me_.i;
            return true;
          }
          go(odd_fence);
          break;
        case odd_fence:
          go(with_.rule.odd_before_scan ? scan : decide);
          if (!with_.rule.owner_fences) break;
          return fence_passes();
        case scan:
          if (me_.i < reader_count) {
            scan_slot(me_.i++);
            return true;
          }
          go(with_.rule.odd_before_scan ? decide : mark_odd);
          break;
        case decide:
          if (me_.i == block_count) {
            me_.condemned = me_.pinned = 0;
            go(give);
            break;
          }
          if (decide_on(me_.i)) return true;
          break;
        case set_aside: {
          const byte block = me_.i++;
          me_.pc = decide;
          const bool held = has(me_.pinned, block);
          if (!held) me_.clean |= bit(block);
          saw(held ? became_zombie : block_refilled);
          if (!held && !with_.rule.record_freed_before_reuse) break;
          store(record, block, held ? record_zombie : record_free);
          return true;
        }
        case give: return give_block();
        case grant_place:
          store(grant_block, me_.writer, static_cast<byte>(me_.i + 1U));
          me_.pc = grant_word;
          return true;
        case grant_word:
          store(grant, me_.writer, 1, with_.rule.grant_is_release);
          me_.pc = wait_for_commit;
          return true;
        case wait_for_commit: return wait();
        case fill_block:
          store(content, me_.i, with_.writer_keys[me_.writer]);
          me_.pc = fill_record;
          return true;
        case fill_record:
          store_release(record, me_.i, record_present(with_.writer_keys[me_.writer]));
          me_.pc = publish_key;
          return true;
        case publish_key:
          store(key_beside, me_.i, with_.writer_keys[me_.writer]);
          me_.pc = publish_version;
          return true;
        case publish_version:
          store(version, me_.i, next_even(load(version, me_.i)), with_.rule.version_is_release);
          insert(me_.i, pick);
          return true;
        case insert_clear:
          store(entry_value, entry_for(me_.insert), 0);
          me_.pc = insert_key;
          return true;
        case insert_key:  // after a release fence: nothing older may be overtaken
          store(entry_key, entry_for(me_.insert), record_key(load(record, me_.insert)), with_.rule.entries_are_fenced);
          me_.pc = insert_value;
          return true;
        case insert_value:
          store(entry_value, entry_for(me_.insert), value_for(me_.insert, load(version, me_.insert)),
                with_.rule.entry_value_is_release);
          me_.pc = me_.then;
          me_.insert = me_.then = 0;
          if (me_.pc == pick) go(pick);
          return true;
        default: return false;
      }
    }
  }

 private:
  using owner_fields = decltype(state::owner);

  static bool is_idle(byte r) noexcept { return r == record_free || r == record_zombie; }

  void go(owner_pc to) noexcept {
    me_.pc = to;
    me_.i = 0;
    if (to == pick || to == finished) me_.writer = 0;
  }
  void insert(byte block, owner_pc then) noexcept {
    me_.insert = block;
    me_.then = then;
    me_.pc = insert_clear;
  }
  bool entry_is_right(std::size_t entry, byte value) const noexcept {
    const byte block = block_of(value);
    const byte r = load(record, block);
    return is_present(r) && load(entry_key, entry) == record_key(r) && value == value_for(block, load(version, block));
  }
  bool is_indexed(std::size_t block) const noexcept {
    for (std::size_t entry = 0; entry < block_count; ++entry) {
      const byte value = load(entry_value, entry);
      if (value != 0 && block_of(value) == block) return true;
    }
    return false;
  }
  /// The entry that names `block`, or else a free one; there are as many as blocks.
  std::size_t entry_for(std::size_t block) const noexcept {
    std::size_t free = 0;
    for (std::size_t entry = block_count; entry-- > 0;) {
      const byte value = load(entry_value, entry);
      if (value == 0) free = entry;
      if (value != 0 && block_of(value) == block) return entry;
    }
    return free;
  }

  bool recover_version_of(std::size_t block) noexcept {
    const byte now = load(version, block);
    const bool present = is_present(load(record, block));
    byte wanted = now;
    if (present && !is_published(now)) wanted = next_even(now);
    if (!present) wanted = now | 1U;
    if (!with_.rule.restart_keeps_versions) wanted = present ? 2 : 1;
    if (wanted == now) return false;
    if (present) saw(restart_mended_version);
    store(version, block, wanted, with_.rule.restart_version_is_release);
    return true;
  }

  bool writer_is_dead(std::size_t w) const noexcept {
    return s_.writers[w].pc == writer_dead && s_.buffers[first_writer + w].size == 0;
  }

  /// Goes on with a grant found after a restart, else condemns a batch for the next writer.
  bool pick_writer() noexcept {
    for (byte b = 0; b < block_count; ++b) {
      const byte r = load(record, b);
      if (!is_granted(r)) continue;
      me_.i = b;
      me_.writer = record_writer(r);
      const bool told = load(grant, me_.writer) != 0 || writer_is_dead(me_.writer);
      me_.pc = told ? wait_for_commit : grant_place;
      return true;
    }
    byte w = 0;
    while (w < with_.writers && (load(grant, w) != 0 || writer_is_dead(w))) ++w;
    if (w == with_.writers) {
      me_ = owner_fields{};
      me_.pc = finished;
      return true;
    }
    me_.writer = w;
    me_.condemned = me_.pinned = 0;
    for (byte b = 0; b < block_count; ++b) {
      const byte r = load(record, b);
      if (r == record_present(with_.writer_keys[w])) return refuse();
      if (is_present(r)) me_.condemned |= bit(b);
    }
    me_.i = 0;
    me_.pc = with_.rule.odd_before_scan ? mark_odd : scan;
    return true;
  }
  bool refuse() noexcept {
    saw(put_refused);
    store_release(grant, me_.writer, grant_refused);
    go(pick);
    return true;
  }

  void scan_slot(std::size_t r) noexcept {
    const bool alive = s_.readers[r].pc != reader_dead;
    const byte pinned = with_.rule.scan_acquires ? load(slot, r) : load_or_pass(slot, r, 0);
    if (pinned == 0 || !alive || !with_.rule.pins_end_by_death_only) return;
    me_.pinned |= bit(pinned - 1U);
  }

  /// One block of the batch. True when that took a store.
  bool decide_on(byte block) noexcept {
    const byte r = load(record, block);
    const bool pinned = has(me_.pinned, block);
    if (has(me_.condemned, block)) {
      if (pinned && with_.pinned == pinned_policy::restore) {
        saw(restored);
        store_release(version, block, next_even(load(version, block)));
        insert(block, decide);
        ++me_.i;
        return true;
      }
      me_.pc = set_aside;
      if (!is_indexed(block)) return false;
      store(entry_value, entry_for(block), 0);
      return true;
    }
    ++me_.i;
    if (!is_idle(r) || has(me_.clean, block) || pinned) return false;
    me_.clean |= bit(block);
    if (r == record_free) return false;
    saw(zombie_reused);
    store(record, block, record_free);
    return true;
  }

  bool give_block() noexcept {
    byte block = 0;
    while (block < block_count && !has(me_.clean, block)) ++block;
    if (block == block_count) return refuse();
    me_.clean &= static_cast<byte>(~bit(block));
    me_.i = block;
    me_.pc = with_.owner_fills ? fill_block : grant_place;
    if (with_.rule.record_freed_before_reuse)
      store(record, block, record_granted(with_.writer_keys[me_.writer], me_.writer));
    return true;
  }

  bool wait() noexcept {
    if (load(commit, me_.writer) != 0) {
      store(record, me_.i, record_present(with_.writer_keys[me_.writer]));
      me_.pc = publish_key;
      return true;
    }
    if (!writer_is_dead(me_.writer) && with_.rule.grants_end_by_death_only) return false;
    me_.clean |= bit(me_.i);
    store(record, me_.i, record_free);
    go(pick);
    return true;
  }

  owner_fields& me_;
};

/// A reader's lookups of its key. No step of it waits for another thread; (lookup, entry, pc) only goes up.
class reader_program : public view {
 public:
  reader_program(const scenario& with, state& s, std::size_t r, load_mode mode, outcome& out)
      : view(with, s, first_reader + r, mode, out), r_(r), key_(with.reader_keys[r]), me_(s.readers[r]) {}

  bool step() {
    const bool match = with_.readers[r_] == reader_kind::matches;
    if (me_.pc <= read_value_again) return look_in_index(match);
    return me_.pc < use_first ? check(match) : use(match);
  }

 private:
  bool look_in_index(bool match) noexcept {
    switch (me_.pc) {
      case read_value:
        if (!with_.rule.reader_acquires_entry && passes()) return is_mine(entry_key, me_.entry) && to(read_value_late);
        me_.value = load(entry_value, me_.entry);
        return me_.value == 0 ? next_entry() : to(read_key);
      case read_value_late:
        me_.value = load(entry_value, me_.entry);
        return me_.value == 0 ? next_entry() : to(read_value_again);
      case read_key:
        if (with_.rule.entries_are_fenced) return is_mine(entry_key, me_.entry) ? to(read_value_again) : next_entry();
        return load_or_pass(entry_key, me_.entry, key_) == key_ ? to(read_value_again) : next_entry();
      case read_value_again:
        if (load(entry_value, me_.entry) != me_.value) {
          if (with_.rule.readers_never_spin) return next_entry();
          return to(read_value);
        }
        return to(match ? check_version : pin);
      default: return false;
    }
  }

  bool check(bool match) noexcept {
    switch (me_.pc) {
      case pin:
        store(slot, r_, static_cast<byte>(block_of(me_.value) + 1U));
        if (with_.rule.reader_fences) return to(pin_fence);
        return to(with_.rule.reader_rereads_version ? check_version : check_key);
      case pin_fence:
        if (!fence_passes()) return false;
        return to(with_.rule.reader_rereads_version ? check_version : check_key);
      case check_version:
        if (match && !with_.rule.match_acquires_version && passes())
          return is_mine(key_beside, block_of(me_.value)) && to(check_version_late);
        [[fallthrough]];
      case check_version_late:
        if (with_.rule.reader_trusts_entry_only) {
          if (load(entry_value, me_.entry) != me_.value) return miss(match);
        } else {
          const byte seen = load(version, block_of(me_.value));
          if (value_for(block_of(me_.value), seen) != me_.value) return miss(match);
          if (match) me_.version = seen;
        }
        if (me_.pc == check_version_late) return to(recheck_version);
        return to(with_.rule.reader_compares_key ? check_key : after_checks(match));
      case check_key:
        if (match && with_.rule.match_fences_loads)
          return is_mine(key_beside, block_of(me_.value)) ? to(recheck_version) : miss(match);
        if (load_or_pass(key_beside, block_of(me_.value), key_) != key_) return miss(match);
        return to(after_checks(match));
      default: return false;
    }
  }

  bool use(bool match) noexcept {
    switch (me_.pc) {
      case recheck_version:
        if (with_.rule.match_rereads_version && load(version, block_of(me_.value)) != me_.version) return miss(match);
        return to(answer);
      case answer:  // it depends on all that was read
        if (!load_fence_passes()) return false;
        saw(matched_hit);
        return end();
      case use_first:
      case use_second:
        if (is_open(content, block_of(me_.value))) return false;
        if (load_or_pass(content, block_of(me_.value), key_) != key_) broke(violation::wrong_bytes);
        saw(pinned_hit);
        return to(me_.pc == use_first ? use_second : unpin);
      case unpin: store(slot, r_, 0, with_.rule.unpin_is_release); return end();
      default: return false;
    }
  }

  static reader_pc after_checks(bool match) noexcept { return match ? recheck_version : use_first; }
  bool is_mine(word_kind kind, std::size_t index) const noexcept { return load(kind, index) == key_; }

  bool to(reader_pc pc) noexcept {
    me_.pc = pc;
    return true;
  }
  bool end() noexcept {
    const auto turn = static_cast<byte>(me_.turn + 1U);
    me_ = {};
    me_.turn = turn;
    me_.pc = turn < with_.lookups ? read_value : read_done;
    return true;
  }
  bool next_entry() noexcept {
    me_.value = 0;
    if (++me_.entry < block_count) return to(read_value);
    saw(missed_in_index);
    return end();
  }
  bool miss(bool match) noexcept {
    if (match) return end();
    saw(missed_after_pin);
    return to(unpin);
  }

  std::size_t r_;
  byte key_;
  std::remove_reference_t<decltype(state::readers[0])>& me_;
};

/// A client that fills the one block granted to it.
class writer_program : public view {
 public:
  writer_program(const scenario& with, state& s, std::size_t w, load_mode mode, outcome& out)
      : view(with, s, first_writer + w, mode, out), w_(w), me_(s.writers[w]) {}

  bool step() {
    switch (me_.pc) {
      case take:
        if (!with_.rule.writer_acquires_grant && passes()) {
          me_.block = load(grant_block, w_);
          me_.pc = take_late;
          return true;
        }
        [[fallthrough]];
      case take_late: {
        const byte given = load(grant, w_);
        if (given == 0) return false;
        if (given == grant_refused) me_.block = 0;
        if (given != grant_refused && me_.pc == take_late) return begin(me_.block);
        me_.pc = given == grant_refused ? write_done : take_block;
        return true;
      }
      case take_block: return begin(load(grant_block, w_));
      case fill:
        store(content, me_.block, with_.writer_keys[w_]);
        me_.pc = announce;
        return true;
      case announce:
        store(commit, w_, 1, with_.rule.commit_is_release);
        me_ = {};
        me_.pc = write_done;
        return true;
      default: return false;
    }
  }

 private:
  bool begin(byte place) noexcept {
    me_.pc = fill;
    me_.block = static_cast<byte>((place - 1U) & 1U);
    const auto& other = s_.writers[1 - w_];
    if ((other.pc == fill || other.pc == announce) && other.block == me_.block) broke(violation::two_writers);
    if (place == 0) broke(violation::no_block);
    return true;
  }

  std::size_t w_;
  std::remove_reference_t<decltype(state::writers[0])>& me_;
};

void become_visible(const scenario& with, state& s, std::size_t thread, std::size_t i, outcome& out) {
  store_buffer& buffer = s.buffers[thread];
  const byte to = buffer.word_at(i);
  const byte value = buffer.values[i];
  buffer.remove(i);
  const byte kind = to / 2U;
  if (kind == version && value < s.memory[to] && with.rule.versions_must_not_decrease)
    out.broken = violation::version_decreased;
  if (kind == content && is_published(s.memory[word(version, to % 2U)])) out.broken = violation::write_to_published;
  s.memory[to] = value;
}

/// The i-th open load of a thread happens. False: it does not find what was hoped for, or an older one of its word is
/// open. Bytes are used as they are found.
bool satisfy(state& s, std::size_t thread, std::size_t i, outcome& out) {
  open_loads& loads = s.loads[thread];
  const byte from = loads.words[i];
  if (loads.has(from, i)) return false;
  if (s.buffers[thread].forward(from, s.memory[from]) != loads.hopes[i]) {
    if (from / 2U != content) return false;
    out.broken = violation::wrong_bytes;
  }
  loads.remove(i);
  s.buffers[thread].forget_load(i);
  return true;
}

/// A dead thread's stores have left the core before anybody sees its death; or, equal to a death a few
/// instructions earlier, those that were still in the buffer never happened: unless a younger one did.
bool die(const scenario& with, state& s, std::size_t thread, bool lose_stores, outcome& out) {
  if (s.loads[thread].size != 0) return false;  // a moment later, when they are satisfied, is as good
  if (lose_stores) {
    if (thread != owner_thread || s.buffers[thread].size == 0 || s.buffers[thread].any_overtaken()) return false;
    s.buffers[thread] = {};
  }
  if (thread == owner_thread) {
    ++s.owner_kills;
    s.owner = {};
  } else {
    ++s.client_kills;
    if (thread < first_writer) {
      auto& reader = s.readers[thread - first_reader];
      if (reader.pc < pin_fence || reader.pc > unpin) return false;
      if (with.readers[thread - first_reader] != reader_kind::pins) return false;
      out.events |= reader_died_with_pin;
      reader = {};
      reader.pc = reader_dead;
    } else {
      auto& writer = s.writers[thread - first_writer];
      if (writer.pc >= write_done) return false;
      if (writer.pc != take) out.events |= writer_died_with_grant;
      writer = {};
      writer.pc = writer_dead;
    }
  }
  while (s.buffers[thread].size > 0) become_visible(with, s, thread, 0, out);
  return true;
}

/// The blocks that are, in memory, published under `key` and hold its bytes.
byte true_blocks(const state& s, byte key) noexcept {
  byte mask = 0;
  for (byte b = 0; b < block_count; ++b) {
    const bool holds = is_published(s.memory[word(version, b)]) && s.memory[word(key_beside, b)] == key &&
                       s.memory[word(content, b)] == key && s.memory[word(record, b)] == record_present(key);
    if (holds) mask |= bit(b);
  }
  return mask;
}

bool is_matching(const scenario& with, const state& s, std::size_t r) noexcept {
  return with.readers[r] == reader_kind::matches && s.readers[r].pc < read_done &&
         (s.readers[r].pc != read_value || s.readers[r].entry != 0);  // else not begun
}

/// A step of `program`; one past a load has to have come to one.
template <class Program>
bool step_of(Program program, load_mode mode) {
  return program.step() && (mode == load_mode::in_order || program.used_mode());
}

bool run(const scenario& with, state& s, std::size_t thread, load_mode mode, outcome& out) {
  if (s.buffers[thread].full()) return false;
  if (thread == owner_thread) return step_of(owner_program(with, s, mode, out), mode);
  if (thread >= first_writer) return step_of(writer_program(with, s, thread - first_writer, mode, out), mode);

  const std::size_t r = thread - first_reader;
  auto& reader = s.readers[r];
  const auto before = reader;
  if (with.readers[r] == reader_kind::matches) reader.truth |= true_blocks(s, with.reader_keys[r]);
  const bool moved = step_of(reader_program(with, s, r, mode, out), mode);
  if (!moved && mode == load_mode::passed) return false;
  if (!moved && s.buffers[thread].size == 0 && s.loads[thread].size == 0) out.broken = violation::reader_stuck;
  const bool forward = reader.turn > before.turn || reader.entry > before.entry || reader.pc > before.pc;
  if (moved && !forward) out.broken = violation::reader_stuck;
  if ((out.events & matched_hit) != 0) {
    const byte true_then = before.truth | true_blocks(s, with.reader_keys[r]);
    if (!has(true_then, block_of(before.value))) out.broken = violation::false_match;
  }
  return moved;
}

std::string thread_name(std::size_t thread) {
  if (thread == owner_thread) return "owner";
  if (thread < first_writer) return "reader " + std::to_string(thread - first_reader);
  return "writer " + std::to_string(thread - first_writer);
}

}  // namespace

const char* to_string(violation what) noexcept {
  switch (what) {
    case violation::none: return "none";
    case violation::wrong_bytes: return "wrong bytes";
    case violation::false_match: return "false match";
    case violation::two_writers: return "two writers";
    case violation::write_to_published: return "write to a published block";
    case violation::version_decreased: return "version decreased";
    case violation::reader_stuck: return "reader stuck";
    case violation::lost: return "lost";
    case violation::stuck: return "stuck";
    case violation::no_block: return "a grant without a block";
  }
  return "?";
}

state initial_state(const scenario& with) {
  state s;
  const auto put = [&s](word_kind kind, std::size_t i, std::size_t value) {
    s.memory[word(kind, i)] = static_cast<byte>(value);
  };
  const std::size_t published = with.second_block_published ? 2 : 1;
  for (std::size_t b = 0; b < published; ++b) {
    put(version, b, 2);
    put(key_beside, b, b);
    put(content, b, b);
    put(record, b, record_present(static_cast<byte>(b)));
    put(entry_value, b, ((2U & with.version_mask) << 1U | b) + 1U);
    put(entry_key, b, b);
  }
  s.owner.pc = pick;
  for (std::size_t b = published; b < block_count; ++b) {
    put(content, b, 7);
    put(key_beside, b, 7);
    s.owner.clean |= bit(b);
    put(version, b, 0);
  }
  for (std::size_t r = 0; r < reader_count; ++r)
    if (with.readers[r] == reader_kind::none) s.readers[r].pc = read_done;
  for (std::size_t w = with.writers; w < writer_count; ++w) s.writers[w].pc = write_done;
  return s;
}

bool may_happen(const scenario& with, const state& s, move m) noexcept {
  switch (m.what) {
    case move::kind::run:
      if (m.thread == owner_thread) return s.owner.pc != finished;
      if (m.thread < first_writer) return s.readers[m.thread - first_reader].pc < read_done;
      return s.writers[m.thread - first_writer].pc < write_done;
    case move::kind::run_past_load:
      return with.order == memory_order_model::arm && !s.loads[m.thread].full() &&
             may_happen(with, s, {move::kind::run, m.thread, 0});
    case move::kind::drain: return s.buffers[m.thread].may_leave(m.place, with.order);
    case move::kind::satisfy: return m.place < s.loads[m.thread].size;
    default: return m.thread == owner_thread ? s.owner_kills < with.owner_kills : s.client_kills < with.client_kills;
  }
}

outcome apply(const scenario& with, state& s, move m) {
  outcome out;
  switch (m.what) {
    case move::kind::run: out.enabled = run(with, s, m.thread, load_mode::in_order, out); break;
    case move::kind::run_past_load: out.enabled = run(with, s, m.thread, load_mode::passed, out); break;
    case move::kind::drain:
      become_visible(with, s, m.thread, m.place, out);
      out.enabled = true;
      break;
    case move::kind::satisfy: out.enabled = satisfy(s, m.thread, m.place, out); break;
    case move::kind::die: out.enabled = die(with, s, m.thread, false, out); break;
    case move::kind::die_losing_stores: out.enabled = die(with, s, m.thread, true, out); break;
  }
  if (!out.enabled) return out;
  for (std::size_t r = 0; r < reader_count; ++r)
    if (is_matching(with, s, r)) s.readers[r].truth |= true_blocks(s, with.reader_keys[r]);
  if (s.breach == violation::none) s.breach = out.broken;
  out.broken = has_open_loads(s) ? violation::none : s.breach;
  return out;
}

bool has_open_loads(const state& s) noexcept {
  return std::ranges::any_of(s.loads, [](const open_loads& each) { return each.size != 0; });
}

violation check_at_rest(const scenario& with, const state& s) {
  if (s.owner.pc != finished) return violation::stuck;
  for (const auto& reader : s.readers)
    if (reader.pc < read_done) return violation::reader_stuck;
  for (const auto& writer : s.writers)
    if (writer.pc < write_done) return violation::stuck;
  const auto at = [&s](word_kind kind, std::size_t i) { return s.memory[word(kind, i)]; };
  for (std::size_t r = 0; r < reader_count; ++r)
    if (s.readers[r].pc == read_done && at(slot, r) != 0) return violation::reader_stuck;

  std::size_t present = 0;
  std::size_t found = 0;
  for (std::size_t b = 0; b < block_count; ++b) {
    const byte r = at(record, b);
    if (is_granted(r)) return violation::stuck;
    if (is_present(r) != is_published(at(version, b))) return violation::lost;
    if (!is_present(r)) continue;
    ++present;
    const byte key = record_key(r);
    if (at(key_beside, b) != key || at(content, b) != key) return violation::lost;
    const auto value = static_cast<byte>(((at(version, b) & with.version_mask) << 1U | b) + 1U);
    for (std::size_t entry = 0; entry < block_count; ++entry)
      if (at(entry_value, entry) == value && at(entry_key, entry) == key) ++found;
  }
  std::size_t entries = 0;
  for (std::size_t entry = 0; entry < block_count; ++entry)
    if (at(entry_value, entry) != 0) ++entries;
  return found == present && entries == present ? violation::none : violation::lost;
}

std::vector<move> all_moves() {
  std::vector<move> moves;
  for (byte thread = 0; thread < thread_count; ++thread) {
    moves.push_back({move::kind::run, thread, 0});
    moves.push_back({move::kind::run_past_load, thread, 0});
    for (byte i = 0; i < store_buffer::capacity; ++i) moves.push_back({move::kind::drain, thread, i});
    for (byte i = 0; i < open_loads::capacity; ++i) moves.push_back({move::kind::satisfy, thread, i});
    moves.push_back({move::kind::die, thread, 0});
  }
  moves.push_back({move::kind::die_losing_stores, owner_thread, 0});
  return moves;
}

std::string describe(const state& s, move m, const outcome& effect) {
  static constexpr const char* words[] = {"version",   "key beside", "content", "record",      "entry value",
                                          "entry key", "slot",       "grant",   "grant block", "commit"};
  const auto name_of = [](byte which) { return words[which / 2U] + ("[" + std::to_string(which % 2U) + "]"); };
  const std::string who = thread_name(m.thread) + ": ";
  switch (m.what) {
    case move::kind::die: return who + "dies";
    case move::kind::die_losing_stores: return who + "dies, its last stores never happened";
    case move::kind::drain: {
      const store_buffer& buffer = s.buffers[m.thread];
      return who + name_of(buffer.word_at(m.place)) + " = " + std::to_string(buffer.values[m.place]) +
             " becomes visible";
    }
    case move::kind::satisfy: {
      const open_loads& loads = s.loads[m.thread];
      return who + name_of(loads.words[m.place]) +
             " is read at last: " + std::to_string(s.memory[loads.words[m.place]]);
    }
    case move::kind::run:
    case move::kind::run_past_load: break;
  }
  const std::string past = m.what == move::kind::run_past_load ? " (passed by what follows)" : "";
  if (m.thread == owner_thread) return who + owner_names[effect.at] + past;
  if (m.thread < first_writer) return who + reader_names[s.readers[m.thread - first_reader].pc] + past;
  return who + writer_names[s.writers[m.thread - first_writer].pc] + past;
}

}  // namespace cenote::model
