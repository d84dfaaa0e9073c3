// The C ABI of devices, and of copies by the processor or by a device.
#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>
#include <vector>

#include "client/c_api_support.hpp"
#include "device/paged_layout.hpp"
#include "device/transform.hpp"

using cenote::error_code;
using cenote::fail;
using cenote::result;
using cenote::strided_piece;
using cenote::c_api::failed;
using cenote::c_api::finish;
using cenote::c_api::guarded;
using cenote::c_api::null_argument;
using cenote::c_api::versioned;
namespace client = cenote::client;
namespace transform = cenote::transform;

struct cenote_event {
  std::shared_ptr<cenote::device> owner;
  cenote::event_ref impl;
  client::fork_guard process;
};

namespace {

static_assert(sizeof(cenote_strided) == sizeof(strided_piece));
static_assert(offsetof(cenote_strided, run_stride) == offsetof(strided_piece, run_stride));

/// body(), unless one of the handles is null or another process's.
template <class Body, class... Handle>
int with(Body&& body, const Handle*... handles) {
  return guarded([&] {
    const auto is_null = [](const auto* handle) { return handle == nullptr; };
    if ((is_null(handles) || ...)) return null_argument("a handle or out");
    if ((handles->process.in_child() || ...)) {
      return failed({error_code::forked, "the device was opened by the parent process; open it again in the child"});
    }
    return body();
  });
}

/// In a child nothing may be ended: threads and drivers stayed with the parent.
template <class Handle>
void free_handle(Handle* handle) {
  std::unique_ptr<Handle> gone(handle);
  if (gone && gone->process.in_child()) static_cast<void>(gone.release());
}

template <class Handle, class... Parts>
int hand_out(Handle** out, Parts&&... parts) {
  *out = std::make_unique<Handle>(Handle{std::forward<Parts>(parts)...}).release();
  return CENOTE_OK;
}

result<cenote_copy_options> copy_options_of(const cenote_copy_options* options) {
  if (options == nullptr) return cenote_copy_options{};
  auto given = versioned(*options, "cenote_copy_options");
  if (!given) return given;
  if (given->threads > 1024) {
    return fail(error_code::invalid_argument,
                "threads is " + std::to_string(given->threads) + "; at most 1024, or 0 for the default");
  }
  if (given->stream != nullptr && given->stream->process.in_child()) {
    return fail(error_code::forked, "the stream belongs to the parent process");
  }
  return given;
}

/// `arrays`: whether those that go with the pieces were given.
result<std::span<const strided_piece>> checked_pieces(const cenote_strided* pieces, size_t count, bool arrays) {
  if (pieces == nullptr || count == 0) return fail(error_code::invalid_argument, "there are no pieces to copy");
  if (!arrays) return fail(error_code::invalid_argument, "indices or blocks is a null pointer");
  const std::span given_pieces(reinterpret_cast<const strided_piece*>(pieces), count);
  const auto wrong = std::ranges::find_if(
      given_pieces, [](const auto& piece) { return piece.base == nullptr || piece.run_bytes == 0 || piece.runs == 0; });
  if (wrong == given_pieces.end()) return given_pieces;
  return fail(error_code::invalid_argument,
              "piece " + std::to_string(wrong - given_pieces.begin()) + " has no base, no runs, or runs of 0 bytes");
}

/// What a device needs for a gather or scatter: the pieces as a layout of one layer, and where they begin in blocks.
struct device_move {
  cenote::paged_layout layout;
  std::vector<std::byte*> blocks;
};

result<device_move> device_move_of(std::span<const strided_piece> pieces, std::span<const std::uint64_t> indices,
                                   std::span<std::byte* const> blocks, std::uint64_t block_offset) {
  const std::uint64_t last = *std::ranges::max_element(indices);
  if (last == std::numeric_limits<std::uint64_t>::max()) return fail(error_code::invalid_argument, "an index is -1");
  auto layout = cenote::paged_layout::of_pieces({pieces.begin(), pieces.end()}, 1, last + 1);
  if (!layout) return std::unexpected(layout.error());
  device_move made{std::move(*layout), {blocks.begin(), blocks.end()}};
  for (std::byte*& block : made.blocks) block += block_offset;
  return made;
}

enum class direction : bool { gather, scatter };

result<void> move_blocks(std::span<const strided_piece> pieces, std::span<const std::uint64_t> indices,
                         std::span<std::byte* const> blocks, const cenote_copy_options& options, direction way) {
  if (indices.empty()) return {};
  if (options.stream == nullptr) {
    if (way == direction::gather) {
      transform::gather(pieces, indices, blocks, options.threads, options.block_offset);
    } else {
      const std::vector<const std::byte*> sources(blocks.begin(), blocks.end());
      transform::scatter(pieces, indices, sources, options.threads, options.block_offset);
    }
    return {};
  }
  const auto move = device_move_of(pieces, indices, blocks, options.block_offset);
  if (!move) return std::unexpected(move.error());
  const auto& [owner, stream] = options.stream->impl;
  const auto all = move->layout.all_layers();
  return way == direction::gather ? owner->gather(stream, move->layout, {indices, move->blocks}, all)
                                  : owner->scatter(stream, move->layout, {indices, move->blocks}, all);
}

int checked_move(const cenote_strided* pieces, size_t piece_count, const uint64_t* indices, std::byte* const* blocks,
                 size_t count, const cenote_copy_options* options, direction way) {
  return guarded([&] {
    const auto chosen = copy_options_of(options);
    if (!chosen) return failed(chosen.error());
    const bool arrays = count == 0 || (indices != nullptr && blocks != nullptr);
    const auto checked = checked_pieces(pieces, piece_count, arrays);
    if (!checked) return failed(checked.error());
    return finish(move_blocks(*checked, {indices, count}, {blocks, count}, *chosen, way));
  });
}

}  // namespace

extern "C" {

int cenote_device_open(const char* name, cenote_device** out) {
  return guarded([&] {
    if (name == nullptr || out == nullptr) return null_argument("name or out");
    *out = nullptr;
    auto opened = cenote::device::open(name);
    if (!opened) return failed(opened.error());
    return hand_out(out, std::shared_ptr<cenote::device>(std::move(*opened)), client::fork_guard());
  });
}

void cenote_device_free(cenote_device* device) {
  free_handle(device);
}

int cenote_stream_open(cenote_device* device, cenote_stream** out) {
  return with(
      [&] {
        if (out == nullptr) return null_argument("out");
        auto made = device->impl->make_stream();
        if (!made) return failed(made.error());
        return hand_out(out, client::device_stream{device->impl, std::move(*made)}, device->process);
      },
      device);
}

int cenote_stream_wrap(cenote_device* device, void* native, cenote_stream** out) {
  return with(
      [&] {
        if (out == nullptr) return null_argument("out");
        auto made = device->impl->outside(native);
        if (!made) return failed(made.error());
        return hand_out(out, client::device_stream{device->impl, std::move(*made)}, device->process);
      },
      device);
}

void* cenote_stream_native(const cenote_stream* stream) {
  return stream == nullptr ? nullptr : stream->impl.stream->native();
}

void cenote_stream_free(cenote_stream* stream) {
  free_handle(stream);
}

int cenote_event_record(cenote_stream* stream, cenote_event** out) {
  return with(
      [&] {
        if (out == nullptr) return null_argument("out");
        auto made = stream->impl.owner->record(stream->impl.stream);
        if (!made) return failed(made.error());
        return hand_out(out, stream->impl.owner, std::move(*made), stream->process);
      },
      stream);
}

int cenote_event_done(const cenote_event* event, uint32_t* done) {
  return with(
      [&] {
        if (done == nullptr) return null_argument("done");
        *done = 0;
        switch (event->owner->look(event->impl)) {
          case cenote::event_state::pending: return static_cast<int>(CENOTE_OK);
          case cenote::event_state::done: *done = 1; return static_cast<int>(CENOTE_OK);
          default: return failed({error_code::system, "the device failed; nobody knows what its work has written"});
        }
      },
      event);
}

int cenote_event_wait(const cenote_event* event, uint64_t timeout_ns) {
  return with(
      [&] {
        constexpr std::uint64_t longest = std::uint64_t{1} << 60;  // no overflow of the clock
        return finish(
            cenote::await(*event->owner, event->impl, std::chrono::nanoseconds(std::min(timeout_ns, longest))));
      },
      event);
}

int cenote_stream_wait(cenote_stream* stream, const cenote_event* event) {
  return with(
      [&] {
        if (stream->impl.owner != event->owner) {
          return failed({error_code::invalid_argument, "the event is of another device than the stream"});
        }
        return finish(stream->impl.owner->wait(stream->impl.stream, event->impl));
      },
      stream, event);
}

void cenote_event_free(cenote_event* event) {
  free_handle(event);
}

int cenote_use_device(cenote_session* session, cenote_device* device) {
  return with(
      [&] {
        if (session == nullptr) return null_argument("session");
        return finish(session->impl->use_device(device->impl));
      },
      device);
}

int cenote_session_device(cenote_session* session, cenote_device** out) {
  return guarded([&] {
    if (session == nullptr || out == nullptr) return null_argument("session or out");
    *out = nullptr;
    if (session->impl->in_child()) {
      return failed({error_code::forked, "this session belongs to the parent process; attach again in the child"});
    }
    auto home = session->impl->home();
    if (!home) return failed({error_code::invalid_argument, "the blocks of this session are host memory"});
    return hand_out(out, std::move(home), client::fork_guard());
  });
}

int cenote_release_after(cenote_session* session, const uint32_t* slots, size_t count, cenote_stream* stream) {
  return with(
      [&] {
        if (session == nullptr || (slots == nullptr && count != 0)) return null_argument("session or slots");
        return finish(session->impl->release_after({slots, count}, stream->impl));
      },
      stream);
}

int cenote_commit_after(cenote_session* session, const cenote_reserved* blocks, size_t count, cenote_stream* stream) {
  return with(
      [&] {
        if (session == nullptr || (blocks == nullptr && count != 0)) return null_argument("session or blocks");
        const std::span list(reinterpret_cast<const client::reserved_block*>(blocks), count);
        return finish(session->impl->commit_after(list, stream->impl));
      },
      stream);
}

int cenote_gather(const cenote_strided* pieces, size_t piece_count, const uint64_t* indices, void* const* blocks,
                  size_t count, const cenote_copy_options* options) {
  return checked_move(pieces, piece_count, indices, reinterpret_cast<std::byte* const*>(blocks), count, options,
                      direction::gather);
}

int cenote_scatter(const cenote_strided* pieces, size_t piece_count, const uint64_t* indices, const void* const* blocks,
                   size_t count, const cenote_copy_options* options) {
  // Only read: scatter takes them as sources.
  return checked_move(pieces, piece_count, indices,
                      reinterpret_cast<std::byte* const*>(const_cast<void* const*>(blocks)), count, options,
                      direction::scatter);
}

int cenote_copy(void* const* targets, const void* const* sources, const uint64_t* bytes, size_t count,
                const cenote_copy_options* options) {
  return guarded([&] {
    const auto chosen = copy_options_of(options);
    if (!chosen) return failed(chosen.error());
    if (chosen->block_offset != 0) {
      return failed({error_code::invalid_argument, "block_offset is of cenote_gather and cenote_scatter"});
    }
    if (count == 0) return static_cast<int>(CENOTE_OK);
    if (targets == nullptr || sources == nullptr || bytes == nullptr) return null_argument("targets, sources or bytes");
    if (chosen->stream == nullptr) {
      transform::copy_each({reinterpret_cast<std::byte* const*>(targets), count},
                           {reinterpret_cast<const std::byte* const*>(sources), count}, {bytes, count},
                           chosen->threads);
      return static_cast<int>(CENOTE_OK);
    }
    std::vector<cenote::copy_run> runs(count);
    for (std::size_t i = 0; i < count; ++i) {
      runs[i] = {static_cast<std::byte*>(targets[i]), static_cast<const std::byte*>(sources[i]), bytes[i]};
    }
    return finish(chosen->stream->impl.owner->copy(chosen->stream->impl.stream, runs));
  });
}

}  // extern "C"
