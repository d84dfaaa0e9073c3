#include "tiers/nvme/devices.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "core/checksum.hpp"
#include "core/units.hpp"
#include "tiers/nvme/catalog.hpp"
#include "tiers/nvme/catalog_writer.hpp"
#include "tiers/nvme/path_file.hpp"
#include "tiers/nvme/pending_removals.hpp"
#include "tiers/nvme/removal_log.hpp"
#include "tiers/nvme/uring_engine.hpp"

namespace cenote::nvme {

namespace {

constexpr std::uint64_t metadata_share = 32;  // one part in so many
constexpr std::uint64_t min_metadata = 8 * MiB;
constexpr std::uint64_t metadata_of_a_block = 384;  // measured: 310 in a small catalog under churn, 210 in a large one
constexpr auto patience = std::chrono::milliseconds(250);  // between two looks at whether we are still wanted

}  // namespace

std::uint64_t path_identity(const std::string& directory) noexcept {
  return checksum_of(directory.data(), directory.size());
}

path_budget budget_of(std::uint64_t path_bytes) noexcept {
  path_budget budget;
  budget.metadata_bytes = std::max(min_metadata, path_bytes / metadata_share);
  budget.data_bytes = path_bytes - std::min(path_bytes, budget.metadata_bytes);
  budget.max_blocks = budget.metadata_bytes / metadata_of_a_block;
  return budget;
}

struct devices::path {
  path(std::uint32_t which, std::string where, std::uint64_t bytes, memory::segment kept)
      : number(which),
        directory(std::move(where)),
        budget(budget_of(bytes)),
        pending(std::move(kept), path_identity(directory)) {}

  const std::uint32_t number;
  const std::string directory;
  const path_budget budget;
  pending_removals pending;
  std::atomic<std::uint64_t> unsaved = 0;  ///< submissions that the writer has not answered
  std::optional<path_file> file;
  std::optional<catalog> known;
  std::unique_ptr<catalog_writer> writer;
  std::unique_ptr<io_engine> engine;
  std::thread opener;
  std::atomic<bool> unwanted = false;
  std::mutex mutex;                                                                  // what the opener hands over
  enum class phase : std::uint8_t { opening, open, failed } state = phase::opening;  // with mutex
  std::vector<instance_spec> specs;                                                  // with mutex
  std::vector<std::pair<std::vector<catalog_change>, std::uint64_t>> waiting;  // with mutex: changes and their tags
  // With pins_mutex_.
  io_engine* pins = nullptr;                   // when the path is open
  std::vector<std::span<std::byte>> unpinned;  // what came before that, and is not pinned yet
};

devices::devices(device_options options, device_events events)
    : options_(std::move(options)), events_(std::move(events)) {
  options_.kept.resize(options_.directories.size());
  for (std::size_t i = 0; i < options_.directories.size(); ++i) {
    paths_.push_back(std::make_unique<path>(static_cast<std::uint32_t>(i), options_.directories[i],
                                            options_.capacity / options_.directories.size(),
                                            std::move(options_.kept[i])));
  }
}

devices::~devices() {
  stop();
}

std::uint64_t devices::data_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const auto& each : paths_) bytes += each->budget.data_bytes;
  return bytes;
}

const std::string& devices::directory_of(std::uint32_t number) const noexcept {
  return paths_[number]->directory;
}

result<path_need> devices::check(const device_options& options, const std::string& directory) {
  const std::uint64_t share = options.capacity / std::max<std::size_t>(options.directories.size(), 1);
  auto usable = path_file::check({.directory = directory,
                                  .bytes = budget_of(share).data_bytes,
                                  .holder = options.holder,
                                  .patience = {},
                                  .require_mount = options.require_mount});
  if (!usable || options.engine != engine_kind::io_uring) return usable;
  const auto ring = uring_engine::check(options.queue_depth);
  return ring ? usable : std::unexpected(ring.error());
}

void devices::open() {
  for (std::uint32_t number = 0; number < paths_.size(); ++number) {
    paths_[number]->opener = std::thread([this, number] {
      bool begun = false;
      const auto once = [&] {
        if (!std::exchange(begun, true)) open_one(number);
        return false;
      };
      run_steps(once, breaks(number));
    });
  }
}

exception_callback devices::breaks(std::uint32_t number) {
  return [this, number](const std::string& what) {
    if (events_.broke) events_.broke(number, what);
  };
}

void devices::open_one(std::uint32_t number) {
  path& into = *paths_[number];
  const auto begun = std::chrono::steady_clock::now();
  opened_path found;
  found.path = number;
  found.directory = into.directory;
  found.budget = into.budget;
  do {
    found.status = try_to_open(into, found);
  } while (!found.status && found.status.error().code() == error_code::deadline_exceeded && !into.unwanted);
  if (into.unwanted) return;
  found.drained = into.file.has_value();
  found.full = into.file && !found.status && found.status.error().code() == error_code::no_space;
  found.took = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun);
  const bool works = found.status.has_value();
  let_in(into, works);
  events_.opened(std::move(found));
  if (works) pin_waiting(into);
}

/// What came while the path was opening.
void devices::let_in(path& opened, bool works) {
  const std::lock_guard lock(opened.mutex);
  opened.state = works ? path::phase::open : path::phase::failed;
  for (auto& [changes, tag] : std::exchange(opened.waiting, {})) {
    if (works) {
      submit_changes(opened, std::move(changes), tag);
    } else {
      refuse_changes(opened, changes, tag);
    }
  }
  for (const instance_spec& spec : std::exchange(opened.specs, {})) {
    if (works) opened.writer->remember(spec);
  }
}

void devices::pin_waiting(path& target) {
  while (!target.unwanted) {
    const std::lock_guard lock(pins_mutex_);
    target.pins = target.engine.get();
    if (target.unpinned.empty()) return;
    target.pins->register_memory(target.unpinned.back());
    target.unpinned.pop_back();
  }
}

result<void> devices::try_to_open(path& into, opened_path& found) {
  try {
    return open_path(into, found);
  } catch (const std::exception& thrown) {
    return fail(error_code::internal, into.directory + ": " + thrown.what());
  }
}

result<void> devices::open_path(path& into, opened_path& found) {
  if (!into.file) {
    auto file = path_file::open({.directory = into.directory,
                                 .bytes = into.budget.data_bytes,
                                 .holder = options_.holder,
                                 .patience = patience,
                                 .require_mount = options_.require_mount});
    if (!file) return std::unexpected(file.error());
    into.file.emplace(std::move(*file));
  }
  found.end = into.file->bytes();
  found.direct = into.file->direct();
  if (auto opened = open_catalog(into, found); !opened) return opened;
  auto engine = make_engine(options_.engine, *into.file,
                            {.queue_depth = options_.queue_depth,
                             .on_exception = breaks(found.path),
                             .on_refusal = [&found](const error& why) { found.no_uring = why.message(); }},
                            [this, number = found.path](std::span<const io_completion> done) {
                              events_.completed(number, {done.begin(), done.end()});
                            });
  if (!engine) return std::unexpected(engine.error());
  into.engine = std::move(*engine);
  found.engine = into.engine->name();
  return {};
}

/// Whose blocks are to be forgotten by their names.
void read_names(const catalog& known, opened_path& found, removal_set& removed) {
  if (auto specs = known.instances()) {
    found.instances = std::move(*specs);
    removed.resolve(found.instances);
  } else if (removed.has_names()) {
    removed.add_everything();  // more may always go
  }
}

/// Blocks whose removal nobody could write down are left out, whatever the metadata says.
result<void> devices::open_catalog(path& into, opened_path& found) {
  removal_log log(into.file->descriptor(), path_file::log_offset, into.file->store_id());
  auto logged = log.load();
  if (!logged) return std::unexpected(logged.error().in(into.directory));
  into.pending.add(*logged);
  removal_set removed = into.pending.look().what;
  const catalog_options wanted{.directory = into.directory,
                               .store_id = into.file->store_id(),
                               .max_bytes = into.budget.metadata_bytes,
                               .read_only = false};
  auto known = catalog::open(wanted);
  result<load_counts> counts = load_counts{};
  const auto read = [&] {
    found.blocks.clear();
    found.owners.clear();
    found.keys.clear();
    read_names(*known, found, removed);
    counts = known->load([&](const stored_block& block) {
      if (removed.contains(block.instance, block.key)) {
        ++found.removed;
      } else if (auto small = adopted_from(block)) {
        if (found.owners.empty() || found.owners.back() != block.instance) found.owners.push_back(block.instance);
        small->owner = static_cast<std::uint32_t>(found.owners.size() - 1);
        small->number = static_cast<std::uint32_t>(found.blocks.size());
        if (options_.keeps_keys) found.keys.set(small->number, block.group, block.full);
        found.blocks.push_back(*small);
      }
    });
    return counts.has_value();
  };
  const sequence_mark mark(into.file->descriptor(), path_file::mark_offset, into.file->store_id());
  const auto before = mark.load();
  if (!before) return std::unexpected(before.error().in(into.directory));
  if (known && known->sequence() < *before) {
    known = fail(error_code::malformed, "records are missing at its end, removals among them perhaps (it has " +
                                            std::to_string(known->sequence()) + " changes of " +
                                            std::to_string(*before) + "): was its log lost?");
  }
  if (known ? !read() : known.error().code() == error_code::malformed) {
    found.set_aside = known ? counts.error().message() : known.error().message();
    if (known) known = fail(error_code::malformed, "");  // closes it
    if (auto moved = catalog::set_aside(into.directory); !moved) return moved;
    found.blocks.clear();
    found.owners.clear();
    found.keys.clear();
    found.instances.clear();
    found.removed = 0;
    counts = load_counts{};
    known = catalog::open(wanted);
    if (auto begun = mark.store(0); !begun) return begun;
  }
  if (!known) return std::unexpected(known.error());
  found.damaged = counts->damaged;
  std::ranges::stable_sort(found.blocks, {}, &adopted_block::touch);
  found.metadata_waits = known->waits_for_space();
  into.known.emplace(std::move(*known));
  into.writer = std::make_unique<catalog_writer>(
      *into.known, into.pending, log,
      [this, &into](std::span<const std::uint64_t> tags, const save_status& status) {
        for (const std::uint64_t tag : tags) {
          if (tag != unasked || !status.written) events_.saved(into.number, tag, status);
        }
        into.unsaved -= tags.size();  // after what failed is pending: save_removals() looks at both in this order
      },
      mark, breaks(into.number));
  return {};
}

void devices::pin(std::span<std::byte> memory) {
  const std::lock_guard lock(pins_mutex_);
  for (const auto& each : paths_) {
    if (each->pins != nullptr && each->unpinned.empty()) {
      each->pins->register_memory(memory);
    } else {
      each->unpinned.push_back(memory);
    }
  }
}

void devices::unpin(std::span<std::byte> memory) {
  const std::lock_guard lock(pins_mutex_);
  const auto inside = [&](std::span<std::byte> piece) {
    return piece.data() >= memory.data() && piece.data() < memory.data() + memory.size();
  };
  for (const auto& each : paths_) {
    std::erase_if(each->unpinned, inside);
    if (each->pins != nullptr) each->pins->unregister_memory(memory);
  }
}

std::uint64_t devices::pinned_bytes(std::uint32_t number) const noexcept {
  return paths_[number]->engine->registered_bytes();
}

void devices::submit(const std::vector<path_request>& requests) {
  std::vector<io_request> batch;
  for (std::uint32_t number = 0; number < paths_.size(); ++number) {
    batch.clear();
    for (const path_request& each : requests) {
      if (each.path == number) batch.push_back(each.io);
    }
    if (!batch.empty()) paths_[number]->engine->submit(batch);
  }
}

void devices::submit_changes(path& to, std::vector<catalog_change> changes, std::uint64_t tag) {
  ++to.unsaved;
  to.writer->submit(std::move(changes), tag);
}

/// The path did not open; its metadata may hold what is to be erased.
void devices::refuse_changes(path& target, const std::vector<catalog_change>& changes, std::uint64_t tag) {
  removal_set missed;
  for (const catalog_change& each : changes) missed.add(each);
  target.pending.add(missed);
  events_.saved(target.number, tag, {fail(error_code::system, "the path could not be opened"), missed.empty()});
}

std::vector<std::uint32_t> devices::save(std::vector<path_change> changes, std::uint64_t tag) {
  return save_removals(std::move(changes), {}, false, tag);
}

std::vector<std::uint32_t> devices::save_removals(std::vector<path_change> changes, const removal_set& removed,
                                                  bool everywhere, std::uint64_t tag) {
  std::vector<std::uint32_t> asked;
  for (const auto& each : paths_) {
    std::vector<catalog_change> batch;
    for (path_change& change : changes) {
      if (change.path == each->number) batch.push_back(std::move(change.change));
    }
    const std::lock_guard lock(each->mutex);
    // Its metadata may know blocks that are forgotten here: an erasure is under way, failed, or never began.
    const bool doubtful =
        everywhere || each->state != path::phase::open || each->unsaved > 0 || each->pending.size() > 0;
    if (doubtful && !removed.empty()) std::ranges::move(removed.changes(), std::back_inserter(batch));
    if (batch.empty()) continue;
    asked.push_back(each->number);
    switch (each->state) {
      case path::phase::opening: each->waiting.emplace_back(std::move(batch), tag); break;
      case path::phase::open: submit_changes(*each, std::move(batch), tag); break;
      case path::phase::failed: refuse_changes(*each, batch, tag); break;
    }
  }
  return asked;
}

void devices::owe(std::uint32_t number, const removal_set& removed) {
  paths_[number]->pending.add(removed);
}

std::uint64_t devices::pending_removals_of(std::uint32_t number) const noexcept {
  return paths_[number]->pending.size();
}

void devices::remember(const instance_spec& spec) {
  for (const auto& each : paths_) {
    const std::lock_guard lock(each->mutex);
    if (each->state == path::phase::open) {
      each->writer->remember(spec);
    } else if (each->state == path::phase::opening) {
      each->specs.push_back(spec);
    }
  }
}

void devices::stop() noexcept {
  for (const auto& each : paths_) each->unwanted = true;
  for (const auto& each : paths_) {
    if (each->opener.joinable()) each->opener.join();
    if (each->engine) each->engine->stop();
    if (each->writer) each->writer->stop();
  }
}

}  // namespace cenote::nvme
