// The kernels that move pages to blocks and back. nvcc makes them kernels of a GPU (device/cuda/kernels.cu); any other
// compiler makes them functions that do the same with loops, so that tests run the very index arithmetic of the GPU.
// C++20 and nothing of this project but strided_piece, for nvcc's sake.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/strided_piece.hpp"

// CENOTE_KERNEL(name, body, arguments): `body` once for each thread. On a GPU a kernel called `name`; elsewhere a
// function name(arguments, groups, threads of a group).
#if defined(__CUDACC__)
#define CENOTE_DEVICE __device__ __forceinline__
#define CENOTE_ALIASING
#define CENOTE_KERNEL(name, body, arguments)                        \
  extern "C" __global__ void name(arguments given) {                \
    body(given, kernel_place{blockIdx.x, threadIdx.x, blockDim.x}); \
  }
#else
#define CENOTE_DEVICE inline
#define CENOTE_ALIASING [[gnu::may_alias]]
#define CENOTE_KERNEL(name, body, arguments)                                                                        \
  inline void name(const arguments& given, std::uint32_t groups, std::uint32_t threads) {                           \
    for (std::uint32_t group = 0; group < groups; ++group) {                                                        \
      for (std::uint32_t thread = 0; thread < threads; ++thread) body(given, kernel_place{group, thread, threads}); \
    }                                                                                                               \
  }
#endif

namespace cenote::kernels {

/// One batch of moves, as a kernel gets it. All pointers, and what they point to, are memory that the kernel can reach.
/// All addresses, offsets, strides and sizes are multiples of the word that is moved (see word_bytes); a piece has less
/// than 4 GiB. It takes groups() groups of threads, of any number of threads.
struct paged_move {
  const strided_piece* pieces;   ///< piece_count
  const std::uint64_t* offsets;  ///< piece_count: where each begins in a block
  const std::uint64_t* pages;    ///< block_count
  std::byte* const* blocks;      ///< block_count
  std::uint32_t piece_count;
  std::uint32_t block_count;
  std::uint32_t slices;       ///< parts that a piece is moved in, a group of threads each
  std::uint32_t slice_bytes;  ///< a multiple of 16; slices * slice_bytes >= bytes of every piece
  std::uint32_t to_blocks;    ///< 1: gather, 0: scatter

  [[nodiscard]] constexpr std::uint64_t groups() const noexcept {
    return std::uint64_t{block_count} * piece_count * slices;
  }
};

/// Where a thread stands: blockIdx.x, threadIdx.x, blockDim.x.
struct kernel_place {
  std::uint32_t group;
  std::uint32_t thread;
  std::uint32_t threads;
};

struct alignas(16) CENOTE_ALIASING word16 {
  std::uint32_t lanes[4];
};
struct CENOTE_ALIASING word4 {
  std::uint32_t lane;
};
struct CENOTE_ALIASING word1 {
  std::uint8_t lane;
};

/// One thread's share of one slice of one piece of one block. Words of neighbouring threads are neighbours; a thread
/// reads four words before it writes them, so that it waits for memory once.
template <class Word>
CENOTE_DEVICE void move_slice(const paged_move& move, kernel_place place) {
  constexpr std::uint32_t ways = 4;
  const std::uint32_t slice = place.group % move.slices;
  const std::uint32_t pair = place.group / move.slices;
  const std::uint32_t block_number = pair / move.piece_count;
  const std::uint32_t piece_number = pair % move.piece_count;
  const strided_piece piece = move.pieces[piece_number];
  std::byte* const page = piece.base + move.pages[block_number] * piece.block_stride;
  std::byte* const block = move.blocks[block_number] + move.offsets[piece_number];

  const auto run_bytes = static_cast<std::uint32_t>(piece.run_bytes);
  const std::uint64_t piece_bytes = piece.run_bytes * piece.runs;
  const std::uint64_t begin = std::uint64_t{slice} * move.slice_bytes;
  const std::uint64_t limit = begin + move.slice_bytes;
  const std::uint64_t end = limit < piece_bytes ? limit : piece_bytes;
  const std::uint64_t step = std::uint64_t{place.threads} * sizeof(Word);
  for (std::uint64_t at = begin + place.thread * sizeof(Word); at < end; at += ways * step) {
    Word words[ways];
    Word* targets[ways];
    for (std::uint32_t way = 0; way < ways; ++way) {
      const std::uint64_t here = at + way * step;
      targets[way] = nullptr;
      if (here >= end) continue;
      const std::uint32_t run = static_cast<std::uint32_t>(here) / run_bytes;
      const std::uint64_t within = here - std::uint64_t{run} * run_bytes;
      std::byte* const in_page = page + run * piece.run_stride + within;
      std::byte* const in_block = block + here;
      words[way] = *reinterpret_cast<const Word*>(move.to_blocks != 0 ? in_page : in_block);
      targets[way] = reinterpret_cast<Word*>(move.to_blocks != 0 ? in_block : in_page);
    }
    for (std::uint32_t way = 0; way < ways; ++way) {
      if (targets[way] != nullptr) *targets[way] = words[way];
    }
  }
}

CENOTE_KERNEL(cenote_move_16, move_slice<word16>, paged_move)
CENOTE_KERNEL(cenote_move_4, move_slice<word4>, paged_move)
CENOTE_KERNEL(cenote_move_1, move_slice<word1>, paged_move)

}  // namespace cenote::kernels
