#include "tests/unit/tiers/blocks/node_fixture.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "memory/fence.hpp"
#include "tests/support/scarce_address_space.hpp"

namespace cenote::blocks::testing {

using memory::block_record;
using memory::block_ref;
using memory::block_state;
using memory::completion;
using memory::grant_slot;
using memory::index_value;
using memory::operation;
using memory::segment;
using memory::submission;

namespace {

/// The value, or the end of the test program: a fixture that cannot be made has nothing to test.
template <class T>
T must(result<T> made) {
  if (!made) {
    std::fprintf(stderr, "fixture: %s\n", made.error().describe().c_str());
    std::abort();
  }
  if constexpr (!std::is_void_v<T>) return std::move(*made);
}

std::uint64_t mixed(std::uint64_t n) {
  n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9ULL;
  n = (n ^ (n >> 27)) * 0x94d049bb133111ebULL;
  return n ^ (n >> 31);
}

memory::shared_file copy_of(const memory::shared_file& original) {
  return must(memory::shared_file::adopt(must(original.fd().duplicate()), original.size()));
}

segment copy_of(const segment& original) {
  return must(segment::map(must(original.fd().duplicate()), original.size(), memory::access::read_write));
}

constexpr std::uint64_t sample = 512;  // a word of every 512 bytes, and the last one

template <class Each>
bool each_sample(std::uint64_t bytes, const full_key& key, Each visit) {
  const block_key name = reduce_key(key.view(), 0);
  for (std::uint64_t at = 0; at + 8 <= bytes; at += sample) {
    if (!visit(at, mixed(name.hi + at))) return false;
  }
  return bytes < 8 || visit(bytes - 8, mixed(name.hi + (bytes - 8) / sample * sample));
}

}  // namespace

full_key key_of(std::uint64_t n, std::size_t width) {
  std::array<std::byte, max_key_bytes> bytes{};
  for (std::size_t i = 0; i < width; i += 8) {
    const std::uint64_t word = i == 0 ? n : mixed(n + i);
    std::memcpy(bytes.data() + i, &word, std::min<std::size_t>(8, width - i));
  }
  return full_key(std::span(bytes).first(width));
}

void fill(std::byte* to, std::uint64_t bytes, const full_key& key) {
  each_sample(bytes, key, [&](std::uint64_t at, std::uint64_t word) {
    std::memcpy(to + at, &word, sizeof word);
    return true;
  });
}

bool holds(const std::byte* source, std::uint64_t bytes, const full_key& key) {
  return each_sample(bytes, key, [&](std::uint64_t at, std::uint64_t word) {
    return std::memcmp(source + at, &word, sizeof word) == 0;
  });
}

instance_spec spec_of(const std::string& id, std::uint64_t block_bytes, std::size_t parts,
                      const std::string& instance_group) {
  instance_spec spec;
  spec.id = id;
  spec.model = "model";
  spec.dtype = "bf16";
  spec.layout = "page_first";
  spec.tokens_per_block = 16;
  spec.hash_scheme = "sha256_cbor";
  spec.instance_group = instance_group;
  group_spec group{"default", {}};
  for (std::size_t i = 0; i < parts; ++i) group.parts.push_back({"rank" + std::to_string(i), block_bytes / parts});
  spec.groups.push_back(std::move(group));
  return spec;
}

store_options options_of(std::uint64_t capacity, std::uint64_t slab_bytes) {
  store_options options;
  options.capacity = capacity;
  options.slab_bytes = slab_bytes;
  return options;
}

// ---------------------------------------------------------------------------------------------- node

node::node(store_options with) : options(std::move(with)), records_(must(memory::record_table::create())) {
  tier = std::make_unique<store>(options, must(memory::record_table::open(must(records_.memory().fd().duplicate()))));
}

instance_number node::add(const instance_spec& spec) {
  const instance_number number = next_instance_++;
  using memory::access, memory::index_memory, memory::shared_file, memory::version_table;
  auto index = must(memory::index_writer::create(must(shared_file::create("test-index", memory::index_segment_bytes))));
  auto versions = must(version_table::create(must(shared_file::create("test-versions", version_table::segment_bytes))));
  instances.emplace(number,
                    kept_instance{spec, must(index_memory::open(copy_of(index.file()), access::read_write)),
                                  must(version_table::open(copy_of(versions.file()), access::read_write)), owner});
  must(tier->add_instance(number, spec, std::move(index), std::move(versions), now, owner));
  pump();
  return number;
}

session_number node::attach(instance_number to, std::uint32_t pins) {
  const session_number number = next_session_++;
  auto made = must(segment::create("test-session", memory::session_memory::segment_bytes(pins)));
  memory::session_memory::create(made, number, pins);
  sessions.emplace(number, kept_session{to, pins, std::move(made), uid});
  must(tier->add_session(number, to, session(number), uid));
  return number;
}

void node::bury(session_number number) {
  tier->release_session(number, now);
  sessions.erase(number);
}

bool node::pump() {
  bool any = false;
  for (auto requests = tier->take_requests(); !requests.empty(); requests = tier->take_requests()) {
    any = true;
    for (slab_request& request : requests) {
      if (request.what == slab_request::kind::drop) {
        if (request.memory.is_host()) request.memory.file().punch(0, request.memory.size());
        request.memory = {};
        slabs.erase({request.slab.instance, request.slab.index});
        if (on_drop) on_drop(request.slab);
        tier->slab_dropped(request.slab);
        continue;
      }
      if (request.what == slab_request::kind::forget) {
        request.index.punch(0, request.index.size());
        request.versions.file().punch(0, request.versions.file().size());
        instances.erase(request.slab.instance);
        continue;
      }
      if (memory_is_short) {
        tier->slab_failed(request.slab, now + tenths(10));
        continue;
      }
      auto made = must(make_memory ? make_memory(request.slab) : make_slab_memory(request.slab, false, -1));
      slabs.insert_or_assign({request.slab.instance, request.slab.index}, kept_slab{request.slab, copy_of(made)});
      tier->add_slab(request.slab, as_store_has_it(std::move(made)));
    }
  }
  return any;
}

memory::slab_mapping node::as_store_has_it(memory::segment memory) const {
  if (options.bytes_are_host) return memory;
  const std::size_t bytes = memory.size();
  void* const at = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) std::abort();
  return {
      std::shared_ptr<std::byte>(static_cast<std::byte*>(at), [bytes](std::byte* first) { ::munmap(first, bytes); }),
      bytes, must(memory.fd().duplicate())};
}

std::vector<completion> node::run(batch work) {
  if (before_run) before_run(work);
  while (tier->run(work, now) == progress::waits_for_memory) {
    if (!pump()) tier->give_up(work, now);
  }
  if (after_run) after_run(work);
  pump();
  return std::move(work.completions);
}

std::uint64_t node::restart() {
  tier.reset();
  return recover();
}

std::uint64_t node::recover() {
  tier = std::make_unique<store>(options, must(memory::record_table::open(must(records_.memory().fd().duplicate()))));
  for (const auto& [number, kept] : instances) {
    must(tier->recover_instance(
        number, kept.spec, copy_of(kept.index.file),
        must(memory::version_table::open(copy_of(kept.versions.file()), memory::access::read_write)), kept.owner));
  }
  std::vector<std::pair<instance_number, std::uint32_t>> refused;
  for (const auto& [place, kept] : slabs) {
    auto memory = open_slab_memory(must(kept.memory.fd().duplicate()), kept.memory.size());  // punched: it was given up
    std::optional<cenote::testing::scarce_address_space> scarce;
    if (slab_room) scarce.emplace(*slab_room);
    if (!memory || !tier->recover_slab(kept.what, as_store_has_it(std::move(*memory)))) refused.push_back(place);
  }
  for (const auto& place : refused) slabs.erase(place);
  for (const auto& [number, kept] : sessions) must(tier->recover_session(number, kept.in, session(number), kept.uid));
  const std::uint64_t served = tier->rebuild(now);
  pump();
  return served;
}

std::byte* node::bytes(instance_number instance, block_ref ref) const {
  const auto found = slabs.find({instance, ref.slab()});
  return found == slabs.end() ? nullptr : found->second.memory.data() + found->second.what.stride * ref.block();
}

memory::index_reader node::index(instance_number instance) const {
  return memory::index_reader(instances.at(instance).index.tables);
}

const memory::version_table& node::versions(instance_number instance) const {
  const memory::version_table& all = instances.at(instance).versions;
  for (const auto& [place, kept] : slabs) {
    if (place.first == instance) must(all.make_room(kept.what.index, kept.what.first_version, kept.what.count));
  }
  return all;
}

memory::session_memory node::session(session_number number) const {
  const kept_session& kept = sessions.at(number);
  return memory::session_memory(kept.memory.data(), kept.pins);
}

const slab_description* node::slab(instance_number instance, std::uint32_t index) const {
  const auto found = slabs.find({instance, index});
  return found == slabs.end() ? nullptr : &found->second.what;
}

block_record& node::record(instance_number instance, block_ref ref) const {
  return records_[slab(instance, ref.slab())->first_record + ref.block()];
}

std::uint64_t node::present(instance_number instance) const {
  const auto all = status();
  for (const instance_status& each : all.instances) {
    if (each.id == instances.at(instance).spec.id) return each.present;
  }
  return 0;
}

std::string node::broken_identity() const {
  const store_status all = status();
  std::map<std::string, std::array<std::uint64_t, 7>> counted;  // by instance and block state
  std::map<std::string, std::uint64_t> bytes_used, account_used;
  std::map<std::string, std::string> payers;  // by instance
  for (const instance_status& each : all.instances) payers[each.id] = each.account;
  std::uint64_t used = 0;
  std::uint64_t cached = 0;
  std::uint64_t assigned = 0;
  std::map<std::uint32_t, std::uint32_t> ranges;
  for (const auto& [place, kept] : slabs) {
    const auto& [of, index] = place;
    const instance_spec& spec = instances.at(of).spec;
    auto& states = counted[spec.id];
    assigned += kept.what.segment_bytes();
    if (!ranges.emplace(kept.what.first_record, kept.what.count).second) return "two slabs share records";
    for (std::uint32_t b = 0; b < kept.what.count; ++b) {
      const block_ref ref(index, b);
      const block_record& each = record(of, ref);
      const auto state = each.state();
      const std::string where = spec.id + " slab " + std::to_string(index) + " block " + std::to_string(b) + ": ";
      if (static_cast<std::size_t>(state) >= states.size()) return where + "no such state";
      ++states[static_cast<std::size_t>(state)];
      if (state != block_state::free) {
        used += kept.what.stride;
        account_used[payers[spec.id]] += kept.what.stride;
      }
      const std::uint64_t version = versions(of).version(kept.what.first_version + b);
      if (state != block_state::present) {
        if (version != 0 && (version & 1) == 0)
          return where + "published, though its state is " + std::to_string(int(state));
        continue;
      }
      cached += kept.what.stride;
      const full_key full = each.get_key();
      if (version != each.version()) return where + "the table's version is not the record's";
      if (!versions(of).key_equals(kept.what.first_version + b, full.view()))
        return where + "the table has another key";
      if (index_value::make(ref, version) != this->index(of).find(reduce_key(full.view(), kept.what.group))) {
        return where + "not in the index";
      }
    }
  }
  std::uint32_t end = 0;
  for (const auto& [first, count] : ranges) {
    if (first < end) return "ranges of records overlap";
    end = first + count;
  }
  std::map<std::string, std::uint64_t> grants;
  for (const session_status& each : all.sessions) grants[each.instance] += each.grants;
  for (const instance_status& each : all.instances) {
    const auto& states = counted[each.id];
    const auto wrong = [&](const char* what, std::uint64_t reported, block_state state) -> std::string {
      const std::uint64_t real = states[static_cast<std::size_t>(state)];
      if (reported == real) return {};
      return each.id + ": status says " + std::to_string(reported) + " " + what + ", the records " +
             std::to_string(real);
    };
    for (const std::string& text :
         {wrong("free", each.free, block_state::free), wrong("granted", grants[each.id], block_state::granted),
          wrong("pending", each.pending, block_state::pending), wrong("present", each.present, block_state::present),
          wrong("quarantined", each.quarantined, block_state::quarantined),
          wrong("zombie", each.zombie, block_state::zombie),
          wrong("index entries", each.index_entries, block_state::present)}) {
      if (!text.empty()) return text;
    }
  }
  if (used != all.used) return "used is " + std::to_string(all.used) + ", the records say " + std::to_string(used);
  if (assigned != all.assigned)
    return "assigned is " + std::to_string(all.assigned) + ", slabs have " + std::to_string(assigned);
  if (options.grants_in_capacity && all.assigned > all.capacity) return "more is assigned than the capacity";
  if (cached != all.cached)
    return "cached is " + std::to_string(all.cached) + ", the records say " + std::to_string(cached);
  if (!options.grants_in_capacity && cached > all.capacity) return "more is cached than the capacity";
  std::uint64_t sum = 0;
  std::array<std::uint64_t, 3> of_default{}, of_users{};  // used, kept, reserved
  const auto add = [](std::array<std::uint64_t, 3>& to, const account_status& from) {
    to[0] += from.used, to[1] += from.kept, to[2] += from.reserved;
  };
  for (const account_status& each : all.accounts) {
    sum += each.used;
    if (each.used != account_used[each.name]) return "account " + each.name + " is wrong";
    if (each.name == "default") add(of_default, each);
  }
  for (const account_status& each : all.users) add(of_users, each);
  if (of_default != of_users) return "the users of the account `default` do not sum up to it";
  if (sum != used) return "the accounts do not sum up to what is used";
  return {};
}

// ---------------------------------------------------------------------------------------------- client

client::client(node& at_node, instance_number instance, std::uint32_t pins)
    : at(at_node),
      in(instance),
      number(at_node.attach(instance, pins)),
      block_bytes(at_node.instances.at(instance).spec.groups[0].block_bytes()) {}

std::vector<completion> client::run(std::vector<submission> entries) {
  if (entries.empty()) return {};
  ++request_;
  for (std::uint32_t i = 0; i < entries.size(); ++i) {
    entries[i].request = request_;
    entries[i].index = i;
  }
  entries.back().flags |= submission::flag_last;
  batch work;
  work.session = number;
  work.entries = std::move(entries);
  return at.run(std::move(work));
}

completion client::ask(std::vector<submission> entries) {
  const auto answers = run(std::move(entries));
  return answers.empty() ? completion{} : answers.back();
}

std::uint64_t client::grant(std::uint64_t n, std::uint16_t group) {
  submission entry;
  entry.op = operation::grant;
  entry.group = group;
  entry.argument = n;
  return ask({entry}).value;
}

std::optional<blank> client::take(std::uint16_t group) {
  const auto memory = at.session(number);
  for (std::size_t i = 0; i < memory::session_memory::grants; ++i) {
    auto& slot = memory.grant(i);
    std::uint64_t word = slot.word.load(std::memory_order_acquire);
    if (grant_slot::state_of(word) != grant_slot::granted || grant_slot::group_of(word) != group) continue;
    const std::uint32_t version = grant_slot::version_of(word);
    const block_ref ref = block_ref::from_bits(slot.block.load(std::memory_order_relaxed));
    if (slot.word.compare_exchange_strong(word, grant_slot::make(version, group, grant_slot::taken))) {
      return blank{ref, version};
    }
  }
  return std::nullopt;
}

std::optional<blank> client::obtain(std::uint16_t group) {
  if (auto got = take(group)) return got;
  if (grant(1, group) == 0) return std::nullopt;
  return take(group);
}

submission client::commit_of(const blank& what, const full_key& key, std::uint16_t group) const {
  submission entry = entry_of(operation::commit, key, 0, group);
  entry.block = what.ref.bits;
  entry.grant_version = what.version;
  return entry;
}

submission client::entry_of(operation op, const full_key& key, std::uint64_t argument, std::uint16_t group) const {
  submission entry;
  entry.op = op;
  entry.group = group;
  entry.argument = argument;
  entry.key_size = key.size;
  std::memcpy(entry.key, key.bytes.data(), sizeof entry.key);
  return entry;
}

submission client::entry_of(operation op, const blank& what, std::uint64_t argument) const {
  submission entry;
  entry.op = op;
  entry.block = what.ref.bits;
  entry.grant_version = what.version;
  entry.argument = argument;
  return entry;
}

completion client::put(std::span<const full_key> keys, std::uint16_t group) {
  std::vector<submission> entries;
  for (const full_key& key : keys) {
    const auto got = obtain(group);
    if (!got) {
      if (!entries.empty()) ask(std::move(entries));
      completion refused;
      refused.code = static_cast<std::uint16_t>(error_code::no_space);
      return refused;
    }
    fill(at.bytes(in, got->ref), at.instances.at(in).spec.groups[group].block_bytes(), key);
    entries.push_back(commit_of(*got, key, group));
  }
  return ask(std::move(entries));
}

completion client::reserve(const full_key& key, std::uint64_t parts) {
  return run({entry_of(operation::reserve, key, parts)}).front();
}

completion client::finish(const blank& what, std::uint64_t parts) {
  return ask({entry_of(operation::finish, what, parts)});
}

completion client::remove(const full_key& key) {
  return ask({entry_of(operation::remove, key)});
}

/// The entries that the client library makes: runs of one block, and what is missing behind them.
std::vector<submission> client::touch_entries(std::span<const full_key> chain, std::size_t resident) const {
  std::vector<submission> entries;
  const auto words = [&](operation what, std::size_t first, std::size_t end, auto&& word_of) {
    for (std::size_t i = first; i < end; i += memory::touch_runs::capacity) {
      submission& entry = entries.emplace_back();
      entry.op = what;
      const std::size_t n = std::min(memory::touch_runs::capacity, end - i);
      for (std::size_t w = 0; w < n; ++w) {
        const std::uint64_t word = word_of(chain[i + w]);
        std::memcpy(entry.key + w * sizeof word, &word, sizeof word);
      }
      entry.key_size = static_cast<std::uint8_t>(n * sizeof(std::uint64_t));
    }
  };
  words(operation::touch, 0, resident, [&](const full_key& key) {
    return memory::touch_runs::make(index_value::ref(at.index(in).find(reduce_key(key.view(), 0))), 1);
  });
  words(operation::asked, resident, std::min(chain.size(), resident + memory::asked_ids::most),
        [](const full_key& key) { return reduce_key(key.view(), 0).lo; });
  return entries;
}

bool client::is_present(const full_key& key) const {
  return index_value::holds_block(at.index(in).find(reduce_key(key.view(), 0)));
}

void client::touch(std::span<const full_key> chain) {
  std::vector<full_key> here;
  for (const full_key& key : chain) {
    if (is_present(key)) here.push_back(key);
  }
  if (!here.empty()) run(touch_entries(here, here.size()));
}

completion client::keep(std::span<const full_key> chain, bool kept) {
  std::vector<submission> entries;
  for (const full_key& key : chain) entries.push_back(entry_of(operation::keep, key, kept ? 1 : 0));
  return ask(std::move(entries));
}

std::size_t client::request(std::span<const full_key> chain) {
  const auto missing = std::ranges::find_if_not(chain, [&](const full_key& key) { return is_present(key); });
  const auto resident = static_cast<std::size_t>(missing - chain.begin());
  run(touch_entries(chain, resident));
  for (std::size_t first = resident; first < chain.size(); first += 64) {
    std::vector<submission> entries;
    for (const full_key& key : chain.subspan(first, std::min<std::size_t>(64, chain.size() - first))) {
      const blank got = obtain().value();
      fill(at.bytes(in, got.ref), block_bytes, key);
      entries.push_back(commit_of(got, key));
    }
    if (first > 0) entries.front().parent = reduce_key(chain[first - 1].view(), 0).lo;
    ask(std::move(entries));
  }
  return resident;
}

std::optional<std::uint32_t> client::pin(const full_key& key, std::uint16_t group) {
  const std::uint64_t value = at.index(in).find(reduce_key(key.view(), group));
  if (!index_value::holds_block(value)) return std::nullopt;
  const block_ref ref = index_value::ref(value);
  const auto memory = at.session(number);
  std::uint32_t slot = 0;
  while (slot < memory.pin_slots() && memory.pin(slot).load(std::memory_order_relaxed) != 0) ++slot;
  if (slot == memory.pin_slots()) return std::nullopt;
  if (memory.header().pin_high_water.load() <= slot) memory.header().pin_high_water.store(slot + 1);
  memory.pin(slot).store(ref.bits, std::memory_order_relaxed);
  memory::full_fence();
  const auto& table = at.versions(in);
  const auto& home = *table.slab(ref.slab());
  if (home.state.load(std::memory_order_acquire) == static_cast<std::uint32_t>(memory::slab_state::live) &&
      ref.block() < home.count) {
    const std::uint32_t version_index = home.first_version + ref.block();
    if (index_value::matches(value, table.version(version_index)) && table.key_equals(version_index, key.view()))
      return slot;
  }
  unpin(slot);
  return std::nullopt;
}

void client::unpin(std::uint32_t slot) {
  at.session(number).pin(slot).store(0, std::memory_order_release);
}

const std::byte* client::pinned_bytes(std::uint32_t slot) const {
  return at.bytes(in, block_ref::from_bits(at.session(number).pin(slot).load(std::memory_order_relaxed)));
}

look client::read(const full_key& key, std::uint16_t group) {
  const auto slot = pin(key, group);
  if (!slot) return look::miss;
  const std::byte* from = pinned_bytes(*slot);
  const bool right = from != nullptr && holds(from, at.instances.at(in).spec.groups[group].block_bytes(), key);
  unpin(*slot);
  return right ? look::right : look::wrong;
}

}  // namespace cenote::blocks::testing
