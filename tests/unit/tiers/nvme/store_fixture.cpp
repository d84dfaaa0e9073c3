#include "tests/unit/tiers/nvme/store_fixture.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cerrno>
#include <cstring>

namespace cenote::nvme::testing {

namespace {

std::uint64_t mixed(std::uint64_t n) {
  n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9ULL;
  n = (n ^ (n >> 27)) * 0x94d049bb133111ebULL;
  return n ^ (n >> 31);
}

memory::shared_file copy_of(const memory::shared_file& original) {
  return std::move(*memory::shared_file::adopt(std::move(*original.fd().duplicate()), original.size()));
}

tier_options defaults() {
  tier_options made;
  return made;
}

std::uint64_t word_of(instance_number instance, std::uint64_t n, std::uint64_t offset) {
  return mixed((n << 32) + (std::uint64_t{instance} << 24) + offset + 1);
}

}  // namespace

full_key key_of(std::uint64_t n) {
  std::array<std::byte, max_key_bytes> bytes{};
  const std::size_t width = 8 + n % 57;
  for (std::size_t i = 0; i < width; ++i) bytes[i] = static_cast<std::byte>(i < 8 ? n >> (8 * i) : mixed(n + i));
  return full_key(std::span(bytes).first(width));
}

block_key short_key_of(std::uint64_t n) {
  return reduce_key(key_of(n).view(), 0);
}

instance_identity identity_of_instance(instance_number instance) {
  return numbered_identity(mixed(instance));
}

void fill(std::span<std::byte> memory, instance_number instance, std::uint64_t n) {
  for (std::uint64_t at = 0; at < memory.size(); at += 8) {
    const std::uint64_t word = word_of(instance, n, at);
    std::memcpy(memory.data() + at, &word, sizeof word);
  }
}

bool holds(std::span<const std::byte> memory, instance_number instance, std::uint64_t n) {
  for (std::uint64_t at = 0; at < memory.size(); at += 8) {
    const std::uint64_t word = word_of(instance, n, at);
    if (std::memcmp(memory.data() + at, &word, sizeof word) != 0) return false;
  }
  return true;
}

void apply_to(catalog_map& catalog, const catalog_change& change) {
  switch (change.what) {
    case catalog_change::kind::put: catalog[{change.block.instance, change.block.key}] = change.block; break;
    case catalog_change::kind::erase: catalog.erase({change.block.instance, change.block.key}); break;
    case catalog_change::kind::erase_named:  // the tier above knows names
    case catalog_change::kind::erase_name: break;
    case catalog_change::kind::erase_blocks:
      std::erase_if(catalog, [&](const auto& each) { return each.first.first == change.block.instance; });
      break;
    case catalog_change::kind::erase_everything: catalog.clear(); break;
  }
}

tier::tier() : tier(defaults()) {}

tier::tier(tier_options with) : options(std::move(with)) {
  const std::uint32_t count = std::max(options.store.paths, 1U);
  options.store.paths = count;
  paths.resize(count);
  under_way_.resize(count);
  ended_.resize(count);
  for (std::uint32_t p = 0; p < count; ++p) {
    paths[p].io = make_io(p);
  }
  for (const auto& [instance, bytes] : options.block_bytes) {
    if (options.hints) {
      auto file = std::move(*memory::shared_file::create("test-index", memory::index_segment_bytes));
      hints_.emplace(instance, std::move(*memory::index_memory::create(std::move(file))));
    }
  }
  open();
}

std::unique_ptr<fake_io> tier::make_io(std::uint32_t path) {
  return std::make_unique<fake_io>(
      path_file::data_offset + options.bytes, fake_io::pace::stepped,
      [this, path](std::span<const io_completion> batch) { take_completions(path, batch); });
}

void tier::open() {
  store = std::make_unique<nvme::store>(options.store);
  for (const auto& [instance, bytes] : options.block_bytes) {
    store->bind(instance, identity_of_instance(instance),
                options.hints ? std::move(*memory::hint_writer::open(copy_of(hints_.at(instance).file), 10'000))
                              : memory::hint_writer{});
  }
  for (std::uint32_t p = 0; p < paths.size(); ++p) {
    store->open_path(p, path_file::data_offset, path_file::data_offset + options.bytes, options.max_blocks);
    std::vector<catalog_change> forget;
    for (const auto& [key, block] : paths[p].catalog) {
      const auto adopted = adopted_from(block);
      if (adopted && store->adopt(p, *adopted, block.instance, entry_key{block.group, block.full})) continue;
      ++refused;
      forget.push_back({.what = catalog_change::kind::erase, .block = block});
    }
    for (const catalog_change& each : forget) apply_to(paths[p].catalog, each);
  }
  pass_on();
}

void tier::forget_process() {
  for (std::uint32_t p = 0; p < paths.size(); ++p) {
    paths[p].io->release();
    paths[p].io->step_all();
    auto fresh = make_io(p);  // without the faults that wait
    std::ranges::copy(paths[p].io->contents(), fresh->contents().begin());
    paths[p].io = std::move(fresh);
  }
  store.reset();  // after the engines: a probe reads into memory of the store
  for (auto& each : ended_) each.clear();
  for (auto& each : under_way_) each.clear();
  pending_.clear();
}

void tier::restart() {
  forget_process();
  open();
}

void tier::cut_power(std::mt19937_64& random) {
  forget_process();
  for (path_model& each : paths) {
    const auto image = each.io->contents();
    std::ranges::fill(image, std::byte{0});
    for (const auto& [offset, bytes] : each.written) {
      const std::uint64_t sectors = bytes.size() / sector_bytes;
      const std::uint64_t fate = random() % 8;
      const std::uint64_t kept = fate == 0 ? 0 : fate == 1 ? random() % sectors : sectors;
      std::memcpy(image.data() + offset, bytes.data(), kept * sector_bytes);
    }
    each.catalog.clear();
    const std::size_t kept = random() % 2 == 0 ? each.log.size() : random() % (each.log.size() + 1);
    const bool any_may_be_lost = random() % 2 == 0;
    for (std::size_t i = 0; i < kept; ++i) {
      if (!any_may_be_lost || random() % 8 != 0) apply_to(each.catalog, each.log[i]);
    }
    each.written.clear();
    each.log.clear();
  }
  open();
}

transfer tier::make(bool is_read, std::uint64_t n, instance_number instance) {
  const std::uint64_t bytes = options.block_bytes.at(instance);
  aligned_block memory{
      std::unique_ptr<std::byte, aligned_free>(static_cast<std::byte*>(std::aligned_alloc(sector_bytes, bytes))),
      bytes};
  if (is_read) {
    std::memset(memory.bytes.get(), 0, bytes);
  } else {
    fill(memory.all(), instance, n);
  }
  const transfer made{.instance = instance,
                      .group = 0,
                      .token = next_token_++,
                      .full = key_of(n),
                      .key = short_key_of(n),
                      .memory = memory.all()};
  pending_.emplace(made.token, pending{is_read, instance, n, std::move(memory)});
  return made;
}

std::uint64_t tier::ask_write(std::uint64_t n, instance_number instance) {
  const transfer block = make(false, n, instance);
  store->write({&block, 1}, ++now);
  pass_on();
  return block.token;
}

std::uint64_t tier::ask_read(std::uint64_t n, instance_number instance) {
  const transfer block = make(true, n, instance);
  store->read({&block, 1}, ++now);
  pass_on();
  return block.token;
}

transfer_result tier::write(std::uint64_t n, instance_number instance) {
  const std::uint64_t token = ask_write(n, instance);
  settle();
  BOOST_REQUIRE(result_of(token).has_value());
  return *result_of(token);
}

transfer_result tier::write_summed(std::uint64_t n, std::uint64_t checksum) {
  transfer block = make(false, n, 1);
  block.checksum = checksum;
  store->write({&block, 1}, ++now);
  pass_on();
  settle();
  return result_of(block.token).value();
}

transfer_result tier::read(std::uint64_t n, instance_number instance) {
  const std::uint64_t token = ask_read(n, instance);
  settle();
  BOOST_REQUIRE(result_of(token).has_value());
  return *result_of(token);
}

std::uint64_t tier::remove(std::uint64_t n, instance_number instance) {
  const block_key key = short_key_of(n);
  const std::uint64_t removed = store->remove(instance, {&key, 1});
  pass_on();
  return removed;
}

std::uint64_t tier::clear(instance_number instance) {
  const std::uint64_t removed = store->clear(instance);
  pass_on();
  return removed;
}

void tier::tick() {
  store->tick(++now);
  pass_on();
}

bool tier::step(std::uint32_t path) {
  const bool any = paths[path].io->step();
  hear();
  return any;
}

void tier::settle() {
  for (bool any = true; any;) {
    any = false;
    for (std::uint32_t p = 0; p < paths.size(); ++p) {
      while (step(p)) any = true;
    }
  }
}

void tier::release() {
  for (path_model& each : paths) each.io->release();
  hear();
}

std::optional<transfer_result> tier::result_of(std::uint64_t token) const {
  const auto found = answers_.find(token);
  return found == answers_.end() ? std::nullopt : std::optional(found->second);
}

bool tier::hinted(std::uint64_t n, instance_number instance) const {
  return memory::hint_reader(hints_.at(instance).hints).contains(short_key_of(n));
}

bool tier::contains(std::uint64_t n, instance_number instance) const {
  return store->contains(instance, short_key_of(n));
}

std::pair<std::uint32_t, stored_block*> tier::find(std::uint64_t n, instance_number instance) {
  for (std::uint32_t p = 0; p < paths.size(); ++p) {
    const auto found = paths[p].catalog.find({identity_of_instance(instance), short_key_of(n)});
    if (found != paths[p].catalog.end()) return {p, &found->second};
  }
  BOOST_FAIL("block " << n << " is on no path");
  return {};
}

std::vector<std::uint64_t> tier::blocks_on(std::uint32_t path, std::uint64_t below) const {
  std::vector<std::uint64_t> out;
  for (std::uint64_t n = 0; n < below; ++n) {
    if (paths[path].catalog.contains({identity_of_instance(1), short_key_of(n)})) out.push_back(n);
  }
  return out;
}

bool tier::was_lost(std::uint64_t n, instance_number instance) const {
  return std::ranges::any_of(
      lost, [&](const lost_block& each) { return each.instance == instance && each.key == short_key_of(n); });
}

void tier::pass_on() {
  for (path_change& each : store->take_changes()) {
    apply_to(paths[each.path].catalog, each.change);
    if (journal) paths[each.path].log.push_back(std::move(each.change));
  }
  for (const path_request& each : store->take_requests()) {
    const io_request& io = each.io;
    if (!io.checksum && io.kind == io_kind::read) {  // a probe, which may read what is being written
      paths[each.path].io->submit({&io, 1});
      continue;
    }
    auto& others = under_way_[each.path];
    const std::uint64_t end = io.offset + io.memory.size();
    for (const auto& [tag, other] : others) {
      const bool both_read = io.kind == io_kind::read && other.kind == io_kind::read;
      if (!both_read && io.offset < other.end && other.first < end) wrong = "a slot is reused before its completion";
    }
    if (io.kind == io_kind::write) {
      for (const auto& [key, block] : paths[each.path].catalog) {
        if (io.offset < block.offset + block.bytes && block.offset < end) wrong = "a write goes over a block";
      }
    }
    request made{io.kind, io.offset, end, {}};
    if (journal && io.kind == io_kind::write) made.bytes.assign(io.memory.begin(), io.memory.end());
    if (!others.emplace(io.tag, std::move(made)).second) wrong = "two requests have one tag";
    paths[each.path].io->submit({&io, 1});
  }
  for (const transfer_outcome& each : store->take_outcomes()) {
    const auto of = pending_.find(each.token);
    if (of == pending_.end()) {
      wrong = "a transfer has two outcomes";
      continue;
    }
    const pending& ended = of->second;
    if (ended.is_read && each.what == transfer_result::done && !holds(ended.memory.all(), ended.instance, ended.n)) {
      wrong = "wrong bytes";
    }
    answers_.emplace(each.token, each.what);
    pending_.erase(of);
  }
  for (const lost_block& each : store->take_lost()) lost.push_back(each);
  check();
}

void tier::take_completions(std::uint32_t path, std::span<const io_completion> batch) {
  for (const io_completion& each : batch) {
    const auto of = under_way_[path].find(each.tag);
    const bool written = of != under_way_[path].end() && of->second.kind == io_kind::write;
    if (journal && written) paths[path].written.emplace_back(of->second.first, std::move(of->second.bytes));
    ended_[path].push_back(each);
  }
}

void tier::hear() {
  for (std::uint32_t p = 0; p < paths.size(); ++p) {
    const auto batch = std::exchange(ended_[p], {});
    if (batch.empty()) continue;
    for (const io_completion& each : batch) under_way_[p].erase(each.tag);
    store->complete(p, batch, ++now);
  }
  pass_on();
}

void tier::check() {
  const store_status all = store->status();
  std::uint64_t blocks = 0;
  for (std::uint32_t p = 0; p < paths.size(); ++p) {
    blocks += paths[p].catalog.size();
    if (all.paths[p].used > all.paths[p].capacity) wrong = "more is used than there is";
    if (all.paths[p].capacity > options.bytes) wrong = "the capacity is more than the path";
    if (all.paths[p].blocks > options.max_blocks) wrong = "more blocks than the metadata has room for";
    std::uint64_t writes = 0;
    for (const auto& [tag, each] : under_way_[p]) writes += each.kind == io_kind::write ? 1 : 0;
    if (all.paths[p].blocks != paths[p].catalog.size() + writes)
      wrong = "the path counts other blocks than its catalog";
  }
  if (blocks != all.blocks) wrong = "the catalogs hold other blocks than the store";
  if (!wrong.empty()) BOOST_FAIL(wrong);
}

void random_step(tier& tier, std::mt19937_64& random, std::uint64_t keys, bool faults) {
  const std::uint64_t n = random() % keys;
  const auto instance = std::next(tier.options.block_bytes.begin(),
                                  static_cast<std::ptrdiff_t>(random() % tier.options.block_bytes.size()))
                            ->first;
  const auto path = static_cast<std::uint32_t>(random() % tier.paths.size());
  fake_io& io = *tier.paths[path].io;
  switch (random() % 100) {
    case 0: tier.clear(instance); break;
    case 1: tier.release(); break;
    case 2: tier.tick(); break;
    case 3:
      if (faults) io.fail_next(random() % 4 == 0 ? ENOSPC : EIO, io_kind::write);
      break;
    case 4:
      if (faults) io.fail_next(EIO, io_kind::read);
      break;
    case 5:
      if (faults) io.cut_next();
      break;
    case 6: io.hold_next(); break;
    case 7: tier.settle(); break;
    default:
      switch (random() % 10) {
        case 0: tier.remove(n, instance); break;
        case 1:
        case 2:
        case 3: tier.ask_write(n, instance); break;
        case 4:
        case 5: tier.ask_read(n, instance); break;
        default: tier.step(path);
      }
  }
}

}  // namespace cenote::nvme::testing
