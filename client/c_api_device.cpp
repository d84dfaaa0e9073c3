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
using cenote::c_api::call;
using cenote::c_api::clear_results;
using cenote::c_api::device_object;
using cenote::c_api::failed;
using cenote::c_api::finish;
using cenote::c_api::free_handle;
using cenote::c_api::guarded;
using cenote::c_api::hand_out;
using cenote::c_api::null_argument;
using cenote::c_api::session_object;
using cenote::c_api::stream_object;
using cenote::c_api::versioned;
namespace client = cenote::client;
namespace transform = cenote::transform;

template <>
struct cenote::c_api::handle_traits<cenote_event> {
  struct object : client::handle_object {
    object(std::shared_ptr<cenote::device> device, cenote::event_ref event) noexcept
        : owner(std::move(device)), impl(std::move(event)) {}
    std::shared_ptr<cenote::device> owner;
    cenote::event_ref impl;
  };
  static constexpr auto kind = client::handle_kind::event;
};

namespace {

using event_object = cenote::c_api::handle_traits<cenote_event>::object;

static_assert(sizeof(cenote_strided) == sizeof(strided_piece));
static_assert(offsetof(cenote_strided, run_stride) == offsetof(strided_piece, run_stride));

result<cenote_copy_options> copy_options_of(const cenote_copy_options* options) {
  if (options == nullptr) return cenote_copy_options{};
  auto given = versioned(*options, "cenote_copy_options");
  if (!given) return given;
  if (given->threads > 1024) {
    return fail(error_code::invalid_argument,
                "threads is " + std::to_string(given->threads) + "; at most 1024, or 0 for the default");
  }
  return given;
}

/// body(the stream of a copy), null for a copy by the processor.
template <class Body>
int with_stream(cenote_stream* stream, Body&& body) noexcept {
  if (stream == nullptr) return guarded([&] { return body(static_cast<const stream_object*>(nullptr)); });
  return call(stream, [&](const stream_object& order) { return body(&order); });
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
                         std::span<std::byte* const> blocks, const cenote_copy_options& options,
                         const stream_object* stream, direction way) {
  if (indices.empty()) return {};
  if (stream == nullptr) {
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
  const auto& [owner, order] = stream->impl;
  const auto all = move->layout.all_layers();
  return way == direction::gather ? owner->gather(order, move->layout, {indices, move->blocks}, all)
                                  : owner->scatter(order, move->layout, {indices, move->blocks}, all);
}

int checked_move(const cenote_strided* pieces, size_t piece_count, const uint64_t* indices, std::byte* const* blocks,
                 size_t count, const cenote_copy_options* options, direction way) {
  return guarded([&] {
    const auto chosen = copy_options_of(options);
    if (!chosen) return failed(chosen.error());
    const bool arrays = count == 0 || (indices != nullptr && blocks != nullptr);
    const auto checked = checked_pieces(pieces, piece_count, arrays);
    if (!checked) return failed(checked.error());
    return with_stream(chosen->stream, [&](const stream_object* stream) {
      return finish(move_blocks(*checked, {indices, count}, {blocks, count}, *chosen, stream, way));
    });
  });
}

}  // namespace

extern "C" {

int cenote_device_open(const char* name, cenote_device** out) {
  clear_results(out);
  return guarded([&] {
    if (name == nullptr || out == nullptr) return null_argument("name or out");
    auto opened = cenote::device::open(name);
    if (!opened) return failed(opened.error());
    return hand_out(out, std::make_unique<device_object>(std::move(*opened)));
  });
}

void cenote_device_free(cenote_device* device) {
  free_handle(device);
}

int cenote_stream_open(cenote_device* device, cenote_stream** out) {
  return call(device, [&](const device_object& owner) {
    if (out == nullptr) return null_argument("out");
    auto made = owner.impl->make_stream();
    if (!made) return failed(made.error());
    return hand_out(out, std::make_unique<stream_object>(client::device_stream{owner.impl, std::move(*made)}));
  });
}

int cenote_stream_wrap(cenote_device* device, void* native, cenote_stream** out) {
  return call(device, [&](const device_object& owner) {
    if (out == nullptr) return null_argument("out");
    auto made = owner.impl->outside(native);
    if (!made) return failed(made.error());
    return hand_out(out, std::make_unique<stream_object>(client::device_stream{owner.impl, std::move(*made)}));
  });
}

void* cenote_stream_native(const cenote_stream* stream) {
  void* native = nullptr;
  static_cast<void>(call(stream, [&](const stream_object& order) {
    native = order.impl.stream->native();
    return static_cast<int>(CENOTE_OK);
  }));
  return native;
}

void cenote_stream_free(cenote_stream* stream) {
  free_handle(stream);
}

int cenote_event_record(cenote_stream* stream, cenote_event** out) {
  return call(stream, [&](const stream_object& order) {
    if (out == nullptr) return null_argument("out");
    auto made = order.impl.owner->record(order.impl.stream);
    if (!made) return failed(made.error());
    return hand_out(out, std::make_unique<event_object>(order.impl.owner, std::move(*made)));
  });
}

int cenote_event_done(const cenote_event* event, uint32_t* done) {
  return call(event, [&](const event_object& point) {
    if (done == nullptr) return null_argument("done");
    *done = 0;
    switch (point.owner->look(point.impl)) {
      case cenote::event_state::pending: return static_cast<int>(CENOTE_OK);
      case cenote::event_state::done: *done = 1; return static_cast<int>(CENOTE_OK);
      default: return failed({error_code::system, "the device failed; nobody knows what its work has written"});
    }
  });
}

int cenote_event_wait(const cenote_event* event, uint64_t timeout_ns) {
  return call(event, [&](const event_object& point) {
    constexpr std::uint64_t longest = std::uint64_t{1} << 60;  // no overflow of the clock
    return finish(cenote::await(*point.owner, point.impl, std::chrono::nanoseconds(std::min(timeout_ns, longest))));
  });
}

int cenote_stream_wait(cenote_stream* stream, const cenote_event* event) {
  return call(stream, [&](const stream_object& order) {
    return call(event, [&](const event_object& point) {
      if (order.impl.owner != point.owner) {
        return failed({error_code::invalid_argument, "the event is of another device than the stream"});
      }
      return finish(order.impl.owner->wait(order.impl.stream, point.impl));
    });
  });
}

void cenote_event_free(cenote_event* event) {
  free_handle(event);
}

int cenote_use_device(cenote_session* session, cenote_device* device) {
  return call(device, [&](const device_object& owner) {
    return call(session, [&](session_object& target) { return finish(target.impl->use_device(owner.impl)); });
  });
}

int cenote_session_device(cenote_session* session, cenote_device** out) {
  clear_results(out);
  return call(session, [&](session_object& target) {
    if (out == nullptr) return null_argument("out");
    auto home = target.impl->home();
    if (!home) return failed({error_code::invalid_argument, "the blocks of this session are host memory"});
    return hand_out(out, std::make_unique<device_object>(std::move(home)));
  });
}

int cenote_release_after(cenote_session* session, const uint32_t* slots, size_t count, cenote_stream* stream) {
  return call(stream, [&](const stream_object& order) {
    return call(session, [&](session_object& target) {
      if (slots == nullptr && count != 0) return null_argument("slots");
      return finish(target.impl->release_after({slots, count}, order.impl));
    });
  });
}

int cenote_commit_after(cenote_session* session, const cenote_reserved* blocks, size_t count, cenote_stream* stream) {
  return call(stream, [&](const stream_object& order) {
    return call(session, [&](session_object& target) {
      if (blocks == nullptr && count != 0) return null_argument("blocks");
      const std::span list(reinterpret_cast<const client::reserved_block*>(blocks), count);
      return finish(target.impl->commit_after(list, order.impl));
    });
  });
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
    return with_stream(chosen->stream, [&](const stream_object* stream) {
      if (stream == nullptr) {
        transform::copy_each({reinterpret_cast<std::byte* const*>(targets), count},
                             {reinterpret_cast<const std::byte* const*>(sources), count}, {bytes, count},
                             chosen->threads);
        return static_cast<int>(CENOTE_OK);
      }
      std::vector<cenote::copy_run> runs(count);
      for (std::size_t i = 0; i < count; ++i) {
        runs[i] = {static_cast<std::byte*>(targets[i]), static_cast<const std::byte*>(sources[i]), bytes[i]};
      }
      return finish(stream->impl.owner->copy(stream->impl.stream, runs));
    });
  });
}

}  // extern "C"
